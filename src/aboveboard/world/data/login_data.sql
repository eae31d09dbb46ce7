-- Chrome's "Login Data"; password_value is "v10" and the cipher text.
CREATE TABLE meta(key LONGVARCHAR NOT NULL UNIQUE PRIMARY KEY, value LONGVARCHAR);
CREATE TABLE logins (origin_url VARCHAR NOT NULL, action_url VARCHAR, username_element VARCHAR, username_value VARCHAR, password_element VARCHAR, password_value BLOB, submit_element VARCHAR, signon_realm VARCHAR NOT NULL, date_created INTEGER NOT NULL, blacklisted_by_user INTEGER NOT NULL, scheme INTEGER NOT NULL, password_type INTEGER, times_used INTEGER, form_data BLOB, display_name VARCHAR, icon_url VARCHAR, federation_url VARCHAR, skip_zero_click INTEGER, generation_upload_status INTEGER, possible_username_pairs BLOB, id INTEGER PRIMARY KEY AUTOINCREMENT, date_last_used INTEGER NOT NULL DEFAULT 0, date_password_modified INTEGER NOT NULL DEFAULT 0);
CREATE INDEX logins_signon ON logins (signon_realm);
INSERT INTO meta VALUES ('version', '43'), ('last_compatible_version', '40');
INSERT INTO logins (origin_url, action_url, username_value, password_value, signon_realm, date_created, blacklisted_by_user, scheme, times_used, date_last_used) VALUES
 ('https://github.com/login', 'https://github.com/session', '«lower:12»', CAST('v10«!b64:48»' AS BLOB), 'https://github.com/', 13385142042512931, 0, 0, 31, 13402331042512931),
 ('https://accounts.google.com/', 'https://accounts.google.com/', 'mail.«lower:12»@gmail.com', CAST('v10«!b64:48»' AS BLOB), 'https://accounts.google.com/', 13381142042512931, 0, 0, 12, 13401331042512931),
 ('https://www.paypal.com/signin', 'https://www.paypal.com/signin', 'mail.«lower:12»@gmail.com', CAST('v10«!b64:32»' AS BLOB), 'https://www.paypal.com/', 13371142042512931, 0, 0, 5, 13391331042512931);
