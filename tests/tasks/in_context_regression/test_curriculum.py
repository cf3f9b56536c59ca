"""The curriculum is the paper's, and the baseline what least squares really leaves."""

import json

import pytest

from mlrforecast.tasks.in_context_regression import Curriculum, Stage, baseline_loss

DIMS = (16, 32, 64, 128, 256)


@pytest.fixture(scope="module")
def published(shared_file):
    return json.loads(shared_file("icl.json").read_text())


@pytest.mark.shared
@pytest.mark.parametrize("dims", DIMS)
def test_every_published_segment(published, dims):
    table = published["curriculum"][f"n_dims_{dims}"]
    curriculum = Curriculum.paper(dims)
    assert (curriculum.dims_step, curriculum.points_step) == (
        table["dims_inc"],
        table["points_inc"],
    )
    assert (curriculum.dims_end, curriculum.points_end) == (table["dims_end"], table["points_end"])
    stages = [
        (segment["first_iteration"], (segment["n_dims_active"], segment["n_points"]))
        for segment in table["segments"]
    ]
    assert curriculum.stages() == stages
    assert curriculum.final_step == stages[-1][0]
    for first, stage in stages:
        assert curriculum.stage(first) == curriculum.stage(first + 1999) == stage
    assert curriculum.stage(500_000) == stages[-1][1]


@pytest.mark.shared
@pytest.mark.parametrize("dims", DIMS)
def test_the_published_baseline_is_dims_times_ours(published, dims):
    for segment in published["curriculum"][f"n_dims_{dims}"]["segments"]:
        active, points = segment["n_dims_active"], segment["n_points"]
        assert segment["seq_len"] == 2 * points
        assert baseline_loss(points, active) == pytest.approx(
            segment["baseline_loss"] / active, abs=1e-12
        )


def test_the_sizes_that_the_paper_names():
    curriculum = Curriculum.paper(64)
    assert curriculum.stages()[:3] == [(0, (4, 8)), (2000, (8, 16)), (4000, (12, 24))]
    assert curriculum.stages()[-2:] == [(28_000, (60, 120)), (30_000, (64, 128))]
    assert curriculum.stage(0) == Stage(dims=4, points=8)


def test_a_shorter_interval_keeps_the_stages_or_makes_them_finer():
    paper = Curriculum.paper(64)
    short = paper.with_interval(200)
    assert [stage for _, stage in short.stages()] == [stage for _, stage in paper.stages()]
    assert short.final_step == 3000
    finer = Curriculum.paper(64, interval=1000)
    assert (finer.dims_step, finer.points_step, finer.final_step) == (2, 4, 30_000)
    shorter = Curriculum.paper(64, num_steps=50_000, interval=200)
    assert shorter == short


def test_a_share_is_the_decimal_number_that_was_written():
    # 0.07 * 100 is 7.000000000000001 in floats, and 0.29 * 100 is 28.999999999999996.
    assert Curriculum.paper(33, num_steps=100, interval=1, warmup_share=0.29).final_step == 29
    assert Curriculum.paper(33, num_steps=100, interval=1, warmup_share=0.28).dims_step == 2


def test_a_training_that_is_too_short_grows_at_once():
    curriculum = Curriculum.paper(16, num_steps=100)
    assert curriculum.stages() == [(0, (4, 8)), (2000, (16, 32))]


@pytest.mark.parametrize(("dims", "points"), [(2, 4), (4, 8), (1, 2)])
def test_fewer_dimensions_than_the_first_stage_are_all_there_at_once(dims, points):
    assert Curriculum.paper(dims).stages() == [(0, (dims, points))]
    assert Curriculum.paper(dims).final_step == 0


@pytest.mark.parametrize("points", [6, 41, 200])
def test_another_number_of_points_is_reached_with_the_dimensions(points):
    curriculum = Curriculum.paper(20, num_points=points)
    assert curriculum.stages()[-1][1] == (20, points)
    assert curriculum.final_step <= 16 * 2000


def test_either_may_be_the_last_to_grow():
    fields = {"dims_start": 1, "points_start": 1, "interval": 10}
    slow_dims = Curriculum(**fields, dims_end=8, dims_step=3, points_end=2)
    assert slow_dims.stages() == [(0, (1, 1)), (10, (4, 2)), (20, (7, 2)), (30, (8, 2))]
    slow_points = Curriculum(**fields, dims_end=2, points_end=4)
    assert slow_points.final_step == 30


def test_a_constant_one():
    assert Curriculum.constant(5, 7).stages() == [(0, (5, 7))]
    assert Curriculum.constant(5).stage(10**9) == (5, 10)


def test_the_baseline_by_hand():
    assert baseline_loss(4, 2) == pytest.approx((1 + 0.5) / 4)
    assert baseline_loss(2, 4) == pytest.approx((1 + 0.75) / 2)
    assert baseline_loss(1, 1) == 1.0


@pytest.mark.usefixtures("own_errors")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Curriculum.paper(0), "`num_dims` must be an integer of at least 1, got 0"),
        (lambda: Curriculum.paper(8, interval=0), "`interval` must be an integer of at least 1"),
        (lambda: Curriculum.paper(8, num_steps=0.5), "`num_steps` must be an integer of at least"),
        (lambda: Curriculum.paper(8, warmup_share=1.5), r"`warmup_share` must be in \(0, 1\], got"),
        (
            lambda: Curriculum.paper(8, warmup_share=0),
            "`warmup_share` must be a finite number abov",
        ),
        (lambda: Curriculum.paper(8).stage(-1), "`step` must be an integer of at least 0, got -1"),
        (lambda: Curriculum.paper(8).with_interval(0), "`interval` must be an integer of at least"),
        (
            lambda: Curriculum(dims_start=4, dims_end=3, points_start=1, points_end=1),
            "`dims_end` must be at least `dims_start`=4, got 3",
        ),
        (
            lambda: Curriculum(dims_start=4, dims_end=4, points_start=2, points_end=1),
            "`points_end` must be at least `points_start`=2, got 1",
        ),
        (lambda: baseline_loss(0, 1), "`points` must be an integer of at least 1, got 0"),
        (lambda: baseline_loss(1, 0), "`dims` must be an integer of at least 1, got 0"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.usefixtures("own_errors")
def test_a_share_that_is_no_number():
    with pytest.raises(TypeError, match="`warmup_share` must be a number"):
        Curriculum.paper(8, warmup_share="0.06")
