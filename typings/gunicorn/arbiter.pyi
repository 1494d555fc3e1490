class Arbiter:
    APP_LOAD_ERROR: int
