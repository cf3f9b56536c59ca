"""Settings of the HTML pages: ``make docs``."""

from mlrforecast import __version__

project = "mlrforecast"
author = "The mlrforecast developers"
copyright = author  # noqa: A001 - the name that Sphinx reads
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"mlrforecast {__version__}"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

napoleon_google_docstring = False
# One description of an attribute: the section of the class, not a second entry for each field.
napoleon_use_ivar = True
# It looks the names of such attributes up in every class, and finds those of two.
suppress_warnings = ["ref.python"]

autodoc_default_options = {
    "members": True,
    "imported-members": True,
    "show-inheritance": True,
    # scikit-learn writes these, in the markup of its own pages.
    "exclude-members": "set_fit_request, set_partial_fit_request, set_predict_request, "
    "set_score_request",
}
autodoc_member_order = "groupwise"
autodoc_preserve_defaults = True
