import gc

from dmuh.server.garbage import leave_to_stay


def test_what_is_there_is_collected_once_and_then_left_out():
    before = gc.get_freeze_count()
    ring = [[] for _ in range(1000)]
    try:
        leave_to_stay()
        assert gc.get_freeze_count() >= before + 1000
        assert not any(one is ring for one in gc.get_objects())
    finally:
        gc.unfreeze()
    assert any(one is ring for one in gc.get_objects())
