-- Cursor's global state: a key-value table.
CREATE TABLE ItemTable (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB);
INSERT INTO ItemTable VALUES ('telemetry.firstSessionDate', 'Mon, 10 Mar 2025 08:14:02 GMT');
INSERT INTO ItemTable VALUES ('cursorAuth/cachedSignUpType', 'Google');
INSERT INTO ItemTable VALUES ('cursorAuth/accessToken', 'eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.«!b64u:180».«b64u:43»');
INSERT INTO ItemTable VALUES ('cursorAuth/refreshToken', 'eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.«!b64u:180».«b64u:43»');
