"""scikit-learn, whose histogram gradient boosting has the threads of OpenMP."""

from workbench.contract import Backend


class ScikitLearn(Backend):
    name = "sklearn"
    install = "`pip install scikit-learn`"
    packages = ("scikit-learn",)
    optional = True
    oldest, newest = "1.5", "1.9"
    threads_fixed_at_import = True  # an estimator takes no number of threads


BACKEND = ScikitLearn()
