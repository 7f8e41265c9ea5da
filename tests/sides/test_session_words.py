"""What may stand in an `Ort`: config keys, threads, provider options and libraries of custom operators."""

from __future__ import annotations

import shutil
import subprocess
import textwrap
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from small_models import case, contract, loaded, model, relu

from fuzzparity import Ort
from fuzzparity.errors import InvalidTarget
from fuzzparity.sides.export import make_build
from fuzzparity.sides.ort_side import OrtSide, check_ort, open_ort
from fuzzparity.sides.pair import Pair, open_pair
from fuzzparity.sides.session_words import is_config_key, known_config_keys

REAL_KEYS = (
    "session.disable_prepacking",
    "session.set_denormal_as_zero",
    "session.disable_cpu_ep_fallback",
    "session.intra_op.allow_spinning",
    "session.use_env_allocators",
    "optimization.enable_gelu_approximation",
    "ep.context_enable",
)

# the C interface of ONNX Runtime by the places of its functions, which never move: each comment says which one it is
LIBRARY = """
    #include <stdint.h>
    #include <stddef.h>
    typedef const void *const *Api;
    typedef void *(*Make)(const char *, void **);
    typedef void *(*Two)(void *, const void *);
    typedef void *(*Get)(const void *, size_t, const void **);
    typedef void *(*Make_output)(void *, size_t, const int64_t *, size_t, void **);
    typedef void *(*Of)(const void *, void *);
    typedef void *(*Dims)(const void *, int64_t *, size_t);
    static Api api;
    static void *create(const void *op, const void *a, const void *info) { return (void *)&api; }
    static const char *name(const void *op) { return "Double"; }
    static const char *provider(const void *op) { return NULL; }
    static int kind(const void *op, size_t index) { return 1; }
    static size_t count(const void *op) { return 1; }
    static void destroy(void *kernel) {}
    static void compute(void *kernel, void *context) {
        const void *input; void *output, *info; float *from, *to; size_t rank, size; int64_t dims[8];
        ((Get)api[90])(context, 0, &input);                                   /* KernelContext_GetInput */
        ((Of)api[65])(input, &info);                                          /* GetTensorTypeAndShape */
        ((Of)api[61])(info, &rank);                                           /* GetDimensionsCount */
        ((Dims)api[62])(info, dims, rank);                                    /* GetDimensions */
        ((Of)api[64])(info, &size);                                           /* GetTensorShapeElementCount */
        ((Make_output)api[91])(context, 0, dims, rank, &output);              /* KernelContext_GetOutput */
        ((Of)api[51])(input, &from); ((Of)api[51])(output, &to);              /* GetTensorMutableData */
        for (size_t i = 0; i < size; i++) to[i] = 2 * from[i];
    }
    static int required(const void *op, size_t index) { return 0; }
    static const void *op[32] = {(void *)8, create, name, provider, kind, count, kind, count, compute, destroy,
                                 required, required};
    void *RegisterCustomOps(void *options, const void *const *base) {
        void *domain, *status;
        api = ((Api(*)(uint32_t))base[0])(8);
        if ((status = ((Make)api[26])("own", &domain))) return status;        /* CreateCustomOpDomain */
        if ((status = ((Two)api[27])(domain, op))) return status;             /* CustomOpDomain_Add */
        return ((Two)api[28])(options, domain);                               /* AddCustomOpDomain */
    }
"""


def test_real_config_keys_are_known_and_reach_the_session() -> None:
    assert all(is_config_key(key) for key in REAL_KEYS)
    assert set(REAL_KEYS) <= known_config_keys()
    for key in ("session.disable_prepackin", "disable_prepacking", "Relu", "session.", ""):
        assert not is_config_key(key)
    side = open_ort(relu().SerializeToString(), Ort(config={"session.disable_prepacking": "1"}), contract(x="float32"))
    assert isinstance(side, OrtSide)


@pytest.mark.parametrize(
    ("ort", "stage", "said"),
    [
        (Ort(config={"session.disable_prepackin": "1"}), "ort", "near it: session.disable_prepacking"),
        (Ort(config={"memory.enable_memory_arena_shrinkage": "cpu:0"}), "ort", "an option of one run"),
        (Ort(config={"session.intra_op_num_threads": "4"}), "ort", "use Ort(threads=...)"),
        (Ort(threads=0), "ort", "threads is 0"),
        (Ort(provider_options={"CPUExecutionProvider": {"use_arena": "0"}}), "provider", "takes no options"),
        (Ort(custom_op_libraries=["absent.so"]), "ort", "there is no custom operator library"),
        (Ort(custom_op_libraries=["text.so"]), "ort", "cannot load the custom operator library text.so"),
    ],
)
def test_what_ort_would_ignore_or_cannot_load_is_said(tmp_path: Path, ort: Ort, stage: str, said: str) -> None:
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(InvalidTarget) as caught:
        check_ort(ort, str(tmp_path))
    assert caught.value.stage == stage
    assert said in str(caught.value)


def test_a_library_that_registers_nothing_is_said() -> None:
    library = next(p for p in (Path(onnxruntime.__file__).parent / "capi").iterdir() if "shared.so" in p.name)
    with pytest.raises(InvalidTarget, match="RegisterCustomOps"):
        check_ort(Ort(custom_op_libraries=[str(library)]))


def test_custom_operators_come_from_the_targets_own_library(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here")
    (tmp_path / "own.c").write_text(textwrap.dedent(LIBRARY))
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", "libown.so", "own.c"], cwd=tmp_path, check=True)
    kind = (TensorProto.FLOAT, ["n", 3])
    made = model([helper.make_node("Double", ["x"], ["y"], domain="own")], {"x": kind}, {"y": kind})
    made.opset_import.append(helper.make_opsetid("own", 1))
    row = np.ones((2, 3), np.float32)
    target = loaded(lambda x: x * 2, {"x": row}, onnx=made, ort=Ort(custom_op_libraries=["libown.so"]), at=tmp_path)
    facts = make_build(target, tmp_path / "builds").facts
    assert facts is not None
    assert not any("checker" in note for note in facts.build.notes)
    pair = open_pair(target, facts, Path(facts.build.folder))
    assert isinstance(pair, Pair)
    found = pair.run_ort(case(x=row * 3))
    assert found.outputs[0].tolist() == (row * 6).tolist()
