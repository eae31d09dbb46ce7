"""Programs that run inside a world in the candidate's place of call. Data to this package: never imported here."""
