"""What every test starts from: one OpenMP thread, since a process that has run torch on several cannot be forked."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported, here and in the processes that tests start
