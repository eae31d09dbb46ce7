-- Firefox's cookies.sqlite: values in clear.
PRAGMA user_version = 16;
CREATE TABLE moz_cookies (id INTEGER PRIMARY KEY, originAttributes TEXT NOT NULL DEFAULT '', name TEXT, value TEXT, host TEXT, path TEXT, expiry INTEGER, lastAccessed INTEGER, creationTime INTEGER, isSecure INTEGER, isHttpOnly INTEGER, inBrowserElement INTEGER DEFAULT 0, sameSite INTEGER DEFAULT 0, schemeMap INTEGER DEFAULT 0, isPartitionedAttributeSet INTEGER DEFAULT 0, CONSTRAINT moz_uniqueid UNIQUE (name, host, path, originAttributes));
INSERT INTO moz_cookies (name, value, host, path, expiry, lastAccessed, creationTime, isSecure, isHttpOnly) VALUES
 ('_gitlab_session', '«!hex:32»', 'gitlab.com', '/', 1790000000, 1759000000000000, 1735000000000000, 1, 1),
 ('sessionid', '«digit:12»%3A«!alnum:16»%3A21', '.instagram.com', '/', 1790000000, 1759000000000000, 1735000000000000, 1, 1),
 ('NID', '511=«!b64u:120»', '.google.com', '/', 1790000000, 1759000000000000, 1735000000000000, 1, 1);
