-- Chrome's "Cookies"; encrypted_value is "v10" and the cipher text.
CREATE TABLE meta(key LONGVARCHAR NOT NULL UNIQUE PRIMARY KEY, value LONGVARCHAR);
CREATE TABLE cookies(creation_utc INTEGER NOT NULL, host_key TEXT NOT NULL, top_frame_site_key TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, encrypted_value BLOB NOT NULL, path TEXT NOT NULL, expires_utc INTEGER NOT NULL, is_secure INTEGER NOT NULL, is_httponly INTEGER NOT NULL, last_access_utc INTEGER NOT NULL, has_expires INTEGER NOT NULL, is_persistent INTEGER NOT NULL, priority INTEGER NOT NULL, samesite INTEGER NOT NULL, source_scheme INTEGER NOT NULL, source_port INTEGER NOT NULL, last_update_utc INTEGER NOT NULL, source_type INTEGER NOT NULL, has_cross_site_ancestor INTEGER NOT NULL);
INSERT INTO meta VALUES ('version', '24'), ('last_compatible_version', '24');
INSERT INTO cookies VALUES
 (13385142042512931, '.github.com', '', 'user_session', '', CAST('v10«!b64:64»' AS BLOB), '/', 13412331042512931, 1, 1, 13402331042512931, 1, 1, 1, 1, 2, 443, 13402331042512931, 1, 0),
 (13385142042512931, '.google.com', '', 'SID', '', CAST('v10«!b64:160»' AS BLOB), '/', 13412331042512931, 1, 1, 13402331042512931, 1, 1, 2, -1, 2, 443, 13402331042512931, 1, 0),
 (13385142042512931, 'discord.com', '', '__dcfduid', '', CAST('v10«b64:48»' AS BLOB), '/', 13412331042512931, 1, 0, 13402331042512931, 1, 1, 1, 0, 2, 443, 13402331042512931, 1, 0);
