"""Function classes: exact, of unit scale, blind to inactive dimensions, fit for a CUDA graph."""

import dataclasses
import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from mlrforecast.tasks.in_context_regression import (
    DecisionTree,
    LinearRegression,
    NearestNeighbour,
    ReluNetwork,
    SparseLinearRegression,
    build_function,
    function_classes,
)

NAMES = tuple(function_classes)
SHAPE = (5, 9, 6)


def generator_of(seed=0):
    return torch.Generator().manual_seed(seed)


def draw(name, shape=SHAPE, *, seed=0, active=None, **options):
    function = build_function(name, **options)
    return function.draw(*shape, active_dims=active, generator=generator_of(seed))


# The same numbers, by plain loops: each oracle takes the random numbers of one episode, in the
# order and the shape in which they are drawn.


def dot(left, right):
    return math.fsum(a * b for a, b in zip(left, right, strict=True))


def sign(value):
    return 1.0 if value >= 0 else -1.0


def linear(points, active, weights):
    return [dot(weights, point) for point in points]


def classes(points, active, weights):
    return [sign(value) for value in linear(points, active, weights)]


def sparse(points, active, weights, keys):
    chosen = sorted(range(active), key=lambda at: -keys[at])[:2]
    scale = math.sqrt(active / len(chosen))
    return [scale * math.fsum(weights[at] * point[at] for at in chosen) for point in points]


def network(points, active, first, second):
    hidden = len(second)
    values = []
    for point in points:
        units = [max(0.0, dot([row[unit] for row in first], point)) for unit in range(hidden)]
        values.append(math.sqrt(2 / hidden) * dot(second, units))
    return values


def tree(points, active, shares, leaves):
    values = []
    for point in points:
        node = 0
        while node < len(shares):
            node = 2 * node + (2 if point[int(shares[node] * active)] > 0 else 1)
        values.append(leaves[node - len(shares)])
    return values


def given(points, active, values):
    return list(values)


def given_signs(points, active, values):
    return [sign(value) for value in values]


def nearest_before(points, values):
    targets = [0.0]
    for at in range(1, len(points)):
        distances = [math.dist(points[at], before) for before in points[:at]]
        targets.append(values[distances.index(min(distances))])
    return targets


# Options; oracle of the values; shapes of what is drawn after the points, and by what.
ORACLES = {
    "linear_regression": ({}, linear, [("randn", (6,))]),
    "linear_classification": ({}, classes, [("randn", (6,))]),
    "sparse_linear_regression": ({"sparsity": 2}, sparse, [("randn", (6,)), ("rand", (6,))]),
    "relu_network": ({"hidden_width": 4}, network, [("randn", (6, 4)), ("randn", (4,))]),
    "decision_tree": ({"depth": 3}, tree, [("rand", (7,)), ("randn", (8,))]),
    "nearest_neighbour": ({}, given, [("randn", (9,))]),
    "nearest_neighbour of signs": ({"values": "signs"}, given_signs, [("randn", (9,))]),
}


def test_every_class_has_an_oracle():
    assert {name.split(" ")[0] for name in ORACLES} == set(NAMES)


@pytest.mark.parametrize("active", [1, 4, 6])
@pytest.mark.parametrize("name", ORACLES)
def test_values_and_targets_are_those_of_plain_loops(name, active):
    options, oracle, drawn = ORACLES[name]
    generator, (batch, _, dims) = generator_of(), SHAPE
    points = torch.randn(SHAPE, generator=generator).double()
    points[..., active:] = 0
    is_sphere = name.startswith("nearest")
    lengths = points.norm(dim=-1, keepdim=True) if is_sphere else math.sqrt(active)
    numbers = [
        getattr(torch, kind)((batch, *shape), generator=generator).double() for kind, shape in drawn
    ]
    xs, ys, targets = draw(name.split(" ")[0], active=active, **options)
    assert {part.dtype for part in (xs, ys, targets)} == {torch.float32}
    torch.testing.assert_close(xs.double(), points / lengths, rtol=1e-6, atol=1e-7)
    for episode in range(batch):
        exact = xs[episode].double().tolist()
        values = oracle(exact, active, *(part[episode].tolist() for part in numbers))
        assert ys[episode].tolist() == pytest.approx(values, abs=2e-6)
        wanted = nearest_before(exact, ys[episode].tolist()) if is_sphere else values
        assert targets[episode].tolist() == pytest.approx(wanted, abs=2e-6)
    assert xs.shape[-1] == dims


def test_ties_of_neighbours_go_to_the_earliest_and_many_points_are_told_apart():
    # In one dimension every point is 1 or -1, so nearly all distances are ties.
    xs, ys, targets = draw("nearest_neighbour", (3, 40, 5), active=1)
    for episode in range(3):
        wanted = nearest_before(xs[episode].tolist(), ys[episode].tolist())
        assert targets[episode].tolist() == wanted
    xs, ys, targets = draw("nearest_neighbour", (2, 150, 3))
    for episode in range(2):
        wanted = nearest_before(xs[episode].double().tolist(), ys[episode].tolist())
        assert targets[episode].tolist() == wanted


@pytest.mark.parametrize("name", NAMES)
def test_targets_are_the_values_but_for_neighbours(name):
    _, ys, targets = draw(name)
    assert torch.equal(ys, targets) == (name != "nearest_neighbour")


# Scale.


@pytest.mark.parametrize("active", [2, 5, 8])
@pytest.mark.parametrize("name", NAMES)
def test_values_have_the_mean_0_and_the_variance_1(name, active):
    # One point an episode: functions are independent, points of one function are not.
    ys = draw(name, (40_000, 1, 8), active=active).ys[:, 0].double()
    for numbers, expected in ((ys, 0.0), (ys.square(), 1.0)):
        error = numbers.std().item() / math.sqrt(len(ys))
        assert error < 0.015
        assert numbers.mean().item() == pytest.approx(expected, abs=5 * error + 1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_points_have_the_variance_of_a_share_and_no_correlation(name):
    xs = draw(name, (20_000, 2, 7), active=5).xs.double()
    assert not xs[..., 5:].any()
    second = torch.einsum("bni,bmj->nimj", xs, xs) / len(xs)
    expected = torch.einsum("nm,ij->nimj", torch.eye(2), torch.diag(torch.ones(7)) / 5)
    expected[:, 5:] = 0
    # A product has a standard deviation of about 1/5, its mean over the draws of 0.0014.
    torch.testing.assert_close(second, expected.double(), rtol=0, atol=0.012)
    assert xs.mean((0, 1)).abs().max() < 0.012


def test_points_of_neighbours_are_uniform_on_the_sphere():
    xs = draw("nearest_neighbour", (20_000, 1, 5), active=3).xs[:, 0].double()
    torch.testing.assert_close(xs.norm(dim=-1), torch.ones(20_000).double())
    # Archimedes: a coordinate of the sphere in three dimensions is uniform in [-1, 1].
    for coordinate in xs.T[:3]:
        ranks = (coordinate.sort().values + 1) / 2
        assert (ranks - torch.linspace(0, 1, 20_000)).abs().max() < 0.015


def test_leaves_of_a_tree_are_asked_for_equally_often():
    ys = DecisionTree(depth=2).draw(3000, 400, 8, generator=generator_of()).ys
    # Four leaves, unless a way asks the same coordinate twice: then one of its leaves is empty.
    found = torch.tensor([len(row.unique()) for row in ys]).double()
    shares = [(found == number).double().mean().item() for number in (2, 3, 4)]
    again = 1 / 8
    expected = [again**2, 2 * again * (1 - again), (1 - again) ** 2]
    assert shares == pytest.approx(expected, abs=0.03)


def weights_of(episodes):
    return torch.linalg.lstsq(episodes.xs.double(), episodes.ys[..., None].double()).solution[
        ..., 0
    ]


@pytest.mark.parametrize(("active", "kept"), [(6, 3), (3, 3), (2, 2), (1, 1)])
def test_sparse_weights_are_few_and_every_active_coordinate_is_chosen(active, kept):
    function = SparseLinearRegression(sparsity=3)
    drawn = function.draw(6000, 12, 8, active_dims=active, generator=generator_of())
    narrow = drawn._replace(xs=drawn.xs[..., :active])
    chosen = weights_of(narrow).abs() > 1e-4
    # A normal weight is below that limit once in ten thousand.
    assert (chosen.sum(1) == kept).double().mean() > 0.998
    shares = chosen.double().mean(0)
    torch.testing.assert_close(shares, torch.full_like(shares, kept / active), rtol=0, atol=0.035)


# Randomness.


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_is_the_same_draw_and_another_is_another(name):
    first, again, other = draw(name), draw(name), draw(name, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.xs, other.xs)
    function, generator = build_function(name), generator_of()
    rows = [function.draw(*SHAPE, generator=generator).ys for _ in range(2)]
    assert not torch.equal(*rows)


@pytest.mark.parametrize("name", NAMES)
def test_episodes_have_functions_of_their_own(name):
    xs, ys, _ = draw(name, (200, 3, 4))
    assert len(xs[:, 0, 0].unique()) == 200
    assert len(ys[:, 0].unique()) == (2 if name == "linear_classification" else 200)


@pytest.mark.parametrize("name", NAMES)
def test_a_tensor_of_active_dimensions_does_what_the_number_does(name):
    for dtype in (torch.int64, torch.int32):
        by_tensor = draw(name, active=torch.tensor(3, dtype=dtype))
        assert all(torch.equal(a, b) for a, b in zip(by_tensor, draw(name, active=3), strict=True))
    assert torch.equal(draw(name).xs, draw(name, active=6).xs)


# What a CUDA graph can record.


class ReadsBack(LinearRegression):
    def _values(self, xs, active, generator):
        return super()._values(xs, active, generator) * active.sum().item()


class ChoosesRows(LinearRegression):
    def _values(self, xs, active, generator):
        return super()._values(xs[..., active], active, generator)


@pytest.mark.parametrize("dims", ["number", "tensor"])
@pytest.mark.parametrize("name", NAMES)
def test_a_draw_reads_nothing_back(name, dims):
    with FakeTensorMode():
        # Not torch.tensor(3), whose value the mode knows and would let be read.
        active = 3 if dims == "number" else torch.empty((), dtype=torch.int64)
        episodes = draw(name, active=active)
    assert [tuple(part.shape) for part in episodes] == [SHAPE, SHAPE[:2], SHAPE[:2]]


@pytest.mark.parametrize("planted", [ReadsBack, ChoosesRows])
def test_planted_synchronisation_is_caught(planted):
    with FakeTensorMode(), pytest.raises(Exception, match=r"aten\.(_local_scalar_dense|nonzero)"):
        planted().draw(*SHAPE, generator=generator_of())


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_draw_goes_on_and_follows_the_active_dimensions(name):
    device = torch.device("cuda")
    generator, active = torch.Generator(device).manual_seed(0), torch.tensor(2, device=device)
    function = build_function(name)

    def one():
        return function.draw(*SHAPE, active_dims=active, generator=generator, device=device)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        one()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        recorded = one()
    graph.replay()
    first = [part.clone() for part in recorded]
    active.fill_(5)
    graph.replay()
    assert not first[0][..., 2:].any()
    assert recorded.xs[..., 4].all()
    assert not recorded.xs[..., 5:].any()
    assert not torch.equal(first[1], recorded.ys)


# Names and errors.


def test_functions_are_frozen_and_built_by_name():
    assert build_function("relu_network", hidden_width=7) == ReluNetwork(hidden_width=7)
    assert build_function("nearest_neighbour") == NearestNeighbour(values="normal")
    with pytest.raises(dataclasses.FrozenInstanceError):
        DecisionTree().depth = 3


@pytest.mark.usefixtures("own_errors")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: build_function("cubic"),
            "Unknown function class 'cubic'. Available: decision_tre",
        ),
        (
            lambda: build_function("decision_tree", width=3),
            "'decision_tree' has no option `width`. Its options are depth.",
        ),
        (lambda: build_function("linear_regression", noise=1), "Its options are none."),
        (lambda: DecisionTree(depth=0), "`depth` must be an integer of at least 1, got 0"),
        (lambda: DecisionTree(depth=17), "`depth` must be at most 16, got 17"),
        (lambda: SparseLinearRegression(sparsity=0), "`sparsity` must be an integer of at least 1"),
        (lambda: ReluNetwork(hidden_width=1.5), "`hidden_width` must be an integer of at least 1"),
        (
            lambda: NearestNeighbour(values="binary"),
            "`values` must be one of normal, signs, got 'b",
        ),
        (lambda: draw("linear_regression", (0, 1, 1)), "`batch_size` must be an integer of at lea"),
        (lambda: draw("linear_regression", (1, 0, 1)), "`num_points` must be an integer of at lea"),
        (lambda: draw("linear_regression", (1, 1, 0)), "`num_dims` must be an integer of at least"),
        (lambda: draw("linear_regression", active=0), "`active_dims` must be an integer of at lea"),
        (
            lambda: draw("linear_regression", active=7),
            "`active_dims` must be at most `num_dims`=6,",
        ),
        (
            lambda: draw("linear_regression", active=torch.tensor([3])),
            "`active_dims` must be one integer on cpu, got a tensor of the shape (1,)",
        ),
        (
            lambda: draw("linear_regression", active=torch.tensor(3.0)),
            "`active_dims` must be one integer on cpu, got a tensor of the shape () and torch",
        ),
        (
            lambda: draw("linear_regression", active=torch.tensor(3, device="meta")),
            "torch.int64 on meta",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - its words are compared below
        call()
    assert message in str(caught.value)
