"""A program whose first lines are these has the names of the kernels that it compiles in ``compiled``."""

import textwrap

COUNTED = textwrap.dedent(
    """
    from numba.core import event

    class Compiled(list, event.Listener):
        def on_start(self, event):
            self.append(event.data["dispatcher"].py_func.__qualname__)

        def on_end(self, event):
            pass

    compiled = Compiled()
    event.register("numba:compile", compiled)
    """
)
