import logging

from stream_tpp.cli.logs_shown import Once, log_to_stderr


def record(message: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("aiokafka", logging.ERROR, __file__, 1, message, arguments, None)


def test_a_message_is_said_once_a_minute() -> None:
    now = 100.0
    once = Once(clock=lambda: now)
    assert once.filter(record("broker %d is gone", 1))
    now = 130.0
    assert not once.filter(record("broker %d is gone", 1))
    assert once.filter(record("broker %d is gone", 2))
    now = 161.0
    assert once.filter(record("broker %d is gone", 1))
    assert not once.filter(record("broker %d is gone", 2))


def test_at_debug_level_all_is_logged_but_the_steps_of_a_compilation() -> None:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    try:
        log_to_stderr("debug")
        assert logging.getLogger("aiokafka.conn").isEnabledFor(logging.DEBUG)
        assert not logging.getLogger("numba.core.byteflow").isEnabledFor(logging.DEBUG)
    finally:
        root.handlers, root.level = handlers, level
        root.setLevel(level)
