"""The cost of small batches is measured over what the copier itself does."""

from ureplicator_bench.merge import figures


def test_the_first_figure_is_that_of_plain_batches() -> None:
    figure = next(figures(progress=lambda _: None))
    assert figure.what == "plain, none"
    assert figure.value > 0
