"""Compile OpenCL C for AMD GPUs, without a GPU, and read the compiler's remarks and listing.

clang (19 or newer) compiles offline with the ROCm device libraries, which define the work-item
functions. If they do not know an architecture yet, one file is missing, which holds its number;
`Compiler` adds it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_TARGET = ("-x", "cl", "-cl-std=CL2.0", "-target", "amdgcn-amd-amdhsa")
_ROCM_PATHS = ("/opt/rocm", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr")


class CompilerError(Exception):
    """The compiler or its libraries are missing, or it refused a source."""


@dataclass(frozen=True)
class Loop:
    """The instructions of one pass of a loop."""

    #: Instructions of matrix units: WMMA or MFMA.
    matrix: int
    #: Multiply-adds of a lane; packed and dual-issue instructions have two.
    fmas: int
    #: Issue slots of the vector unit; a dual-issue pair takes one.
    valu: int
    #: Number of reads of local memory by width in bits, such as "128" or "2x32".
    lds_reads: dict[str, int]
    #: Bytes that a lane reads by them.
    lds_bytes: int
    #: Loads of a lane from global memory.
    global_loads: int
    #: Multiply-adds in dual-issue pairs.
    dual_fmas: int = 0


@dataclass(frozen=True)
class Compiled:
    """The compiler's report on a kernel, and the kernel's main loop."""

    #: Remarks by name: "VGPRs", "ScratchSize", "Occupancy" (waves of a SIMD unit), "LDS Size"
    #: (bytes of a work-group) and others.
    resources: dict[str, int]
    loop: Loop


class Compiler:
    """clang for amdgcn, with device libraries for every requested architecture.

    `rocm_path` is the folder of ``amdgcn/bitcode``; `CompilerError` is raised if it has none.
    `scratch` is an empty folder for the completed libraries.
    """

    def __init__(self, clang: str, rocm_path: Path, scratch: Path) -> None:
        bitcode = rocm_path / "amdgcn" / "bitcode"
        if not bitcode.is_dir():
            raise CompilerError(f"{rocm_path} has no amdgcn/bitcode, the ROCm device libraries")
        self.clang = clang
        self.rocm_path = scratch
        self._bitcode = scratch / "amdgcn" / "bitcode"
        self._bitcode.mkdir(parents=True)
        for file in bitcode.iterdir():
            (self._bitcode / file.name).symlink_to(file.resolve())

    def version(self) -> str:
        """Return the first line of the compiler's ``--version``."""
        return self._run([self.clang, "--version"], "").stdout.splitlines()[0]

    def compile(
        self, source: str, kernel: str, architecture: str, options: Sequence[str] = ()
    ) -> Compiled:
        """Compile OpenCL C for an architecture such as "gfx1030", and read the report on `kernel`.

        `CompilerError` is raised with the compiler's message if it refuses the source.
        """
        self._complete(architecture)
        done = self._run(
            [
                self.clang, *_TARGET, f"-mcpu={architecture}", *options,
                f"--rocm-path={self.rocm_path}", "-Xclang", "-finclude-default-header", "-O3",
                "-Rpass-analysis=kernel-resource-usage", "-S", "-o", "-", "-",
            ],
            source,
        )  # fmt: skip
        return Compiled(resources_of(done.stderr, kernel), main_loop(loops_of(done.stdout, kernel)))

    def _complete(self, architecture: str) -> None:
        """Add the file of an architecture that the libraries do not know."""
        file = self._bitcode / f"oclc_isa_version_{architecture.removeprefix('gfx')}.bc"
        if file.exists():
            return
        name = "const __constant int __oclc_ISA_version"
        self._run(
            [
                self.clang, *_TARGET, f"-mcpu={architecture}", "-nogpulib", "-emit-llvm", "-c",
                "-o", str(file), "-",
            ],
            f"extern {name}; {name} = {isa_version(architecture)};",
        )  # fmt: skip

    @staticmethod
    def _run(command: Sequence[str], text: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CompilerError(f"{' '.join(command)}\n{done.stderr}")
        return done


def find_clang(clang: str | None) -> str:
    """Return the requested compiler, or clang-19 or newer on the path, or clang."""
    names = [clang] if clang else [*(f"clang-{version}" for version in range(19, 30)), "clang"]
    for name in names:
        if found := shutil.which(name):
            return found
    raise CompilerError(
        f"none of {', '.join(names)} is a program here; clang 19 or newer is wanted"
    )


def find_rocm_path(rocm_path: str | None) -> Path:
    """Return the requested folder of the device libraries, or one of the usual places."""
    paths = [rocm_path] if rocm_path else _ROCM_PATHS
    for path in paths:
        if Path(path, "amdgcn", "bitcode").is_dir():
            return Path(path)
    raise CompilerError(
        f"none of {', '.join(paths)} holds amdgcn/bitcode, the ROCm device libraries"
    )


def isa_version(architecture: str) -> int:
    """Return the number of an architecture in the device libraries.

    Examples
    --------
    >>> isa_version("gfx90a"), isa_version("gfx1100")
    (9010, 11000)
    """
    digits = re.fullmatch(r"gfx(\d{1,2})(\d)([0-9a-f])", architecture)
    if not digits:
        raise CompilerError(
            f"{architecture!r} is not of the form of an AMD architecture, such as gfx1030"
        )
    return int(digits[1]) * 1000 + int(digits[2]) * 100 + int(digits[3], 16)


def resources_of(remarks: str, kernel: str) -> dict[str, int]:
    """Read the numbers in the remarks about a kernel by name, without units."""
    resources: dict[str, int] = {}
    current = None
    for line in remarks.splitlines():
        remark = re.search(r"remark:\s+(.+?)(?: \[.*?\])?: (\S+)", line)
        if not remark:
            continue
        if remark[1] == "Function Name":
            current = remark[2]
        elif current == kernel and remark[2].isdigit():
            resources[remark[1]] = int(remark[2])
    if not resources:
        raise CompilerError(f"the compiler says nothing of kernel {kernel!r}")
    return resources


def loops_of(assembly: str, kernel: str) -> dict[str, list[str]]:
    """Return the instructions of a kernel by the header of their innermost loop.

    The loop of a block is read from the compiler's comments, because the order of blocks does not
    show it.
    """
    body = assembly.split(f"\n{kernel}:", 1)[1].split("\n.Lfunc_end", 1)[0]
    loops: dict[str, list[str]] = {}
    label = header = ""
    for line in body.splitlines():
        if block := re.match(r"(?:\.L|; %)(\w+[.\w]*):", line):
            label, header = block[1], ""
        code, _, comment = line.partition(";")
        if re.search("=>.*Loop Header", comment):
            header = label
        elif inside := re.search(r"in Loop: Header=(\w+)", comment):
            header = inside[1]
        if header and re.match(r"[a-z]", code.strip()):
            loops.setdefault(header, []).append(code.strip())
    return loops


_FMA = re.compile(r"\bv_(pk_|dual_)?(?:fma|fmac|fmaak|fmamk|mac|mad)(?:_mix\w*?)?_(?:f16|f32|f64)")
_MATRIX = re.compile(r"v_(?:wmma|mfma)_")
_LDS_READ = re.compile(r"ds_(?:read|load)_?(2)?(?:st64|addr)?(?:_stride64)?_[a-z](\d+)")


def main_loop(loops: Mapping[str, Sequence[str]]) -> Loop:
    """Count the instructions of the loop with the most matrix instructions, then multiply-adds.

    All its blocks are counted once, without the loops inside it.

    Examples
    --------
    >>> main_loop({"BB0_1": ["ds_read_b128 v[0:3], v9", "v_fmac_f32_e32 v4, v0, v1"]})
    Loop(matrix=0, fmas=1, valu=1, lds_reads={'128': 1}, lds_bytes=16, global_loads=0, dual_fmas=0)
    """
    counted = map(_count, loops.values())
    best = max(counted, key=lambda loop: (loop.matrix, loop.fmas), default=None)
    if best is None or not (best.matrix or best.fmas):
        raise CompilerError("no loop of the kernel has a multiply-add")
    return best


def _count(lines: Sequence[str]) -> Loop:
    reads: Counter[str] = Counter()
    lds_bytes = 0
    for line in lines:
        if read := _LDS_READ.match(line):
            times, bits = int(read[1] or 1), int(read[2])
            reads[f"{times}x{bits}" if times > 1 else str(bits)] += 1
            lds_bytes += times * bits // 8
    fmas = [found[1] for line in lines for found in _FMA.finditer(line)]
    return Loop(
        matrix=sum(bool(_MATRIX.match(line)) for line in lines),
        fmas=len(fmas) + fmas.count("pk_"),
        valu=sum(line.startswith("v_") for line in lines),
        lds_reads=dict(reads),
        lds_bytes=lds_bytes,
        global_loads=sum(bool(re.match(r"(?:global|flat|buffer)_load", line)) for line in lines),
        dual_fmas=fmas.count("dual_"),
    )
