-- Firefox's key store: the wrapped key that decrypts logins.json.
CREATE TABLE metaData (id PRIMARY KEY UNIQUE ON CONFLICT REPLACE, item1, item2);
CREATE TABLE nssPrivate (id PRIMARY KEY UNIQUE ON CONFLICT ABORT, a0, a1, a2, a3, a10, a11, a12, a80, a81, a82, a90, a100, a101, a102, a103, a104, a105, a106, a107, a108, a109, a10a, a10b, a10c);
INSERT INTO metaData VALUES ('password', CAST('«alnum:20»' AS BLOB), CAST('0~0h«!b64:120»' AS BLOB));
INSERT INTO nssPrivate (id, a0, a2, a11, a102) VALUES (1203948571, X'00000004', X'01', CAST('0g0S«!b64:96»' AS BLOB), X'f8000000000000000000000000000001');
