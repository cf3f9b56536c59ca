"""In-context regression: read points and values of an unknown function, predict the next value."""

from mlrforecast.tasks.in_context_regression.comparators import (
    averaging,
    comparators,
    k_nearest_neighbours,
    least_squares,
    ridge,
    zero,
)
from mlrforecast.tasks.in_context_regression.curriculum import Curriculum, Stage, baseline_loss
from mlrforecast.tasks.in_context_regression.evaluation import (
    comparator_errors,
    evaluate,
    evaluation_episodes,
)
from mlrforecast.tasks.in_context_regression.functions import (
    DecisionTree,
    Episodes,
    FunctionClass,
    LinearClassification,
    LinearRegression,
    NearestNeighbour,
    ReluNetwork,
    SparseLinearRegression,
    build_function,
    function_classes,
)
from mlrforecast.tasks.in_context_regression.recipe import RegressionRun, load_regressor, train

__all__ = [
    "Curriculum",
    "DecisionTree",
    "Episodes",
    "FunctionClass",
    "LinearClassification",
    "LinearRegression",
    "NearestNeighbour",
    "RegressionRun",
    "ReluNetwork",
    "SparseLinearRegression",
    "Stage",
    "averaging",
    "baseline_loss",
    "build_function",
    "comparator_errors",
    "comparators",
    "evaluate",
    "evaluation_episodes",
    "function_classes",
    "k_nearest_neighbours",
    "least_squares",
    "load_regressor",
    "ridge",
    "train",
    "zero",
]
