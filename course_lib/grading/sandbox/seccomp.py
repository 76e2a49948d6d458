"""A filter over system calls: what no exercise needs, and attacks on kernels do.

The namespaces are the wall; this only takes away tools. On machines other than x86-64 and 64-bit ARM there is
no filter.
"""

import ctypes
import errno
import platform
import struct

from course_lib.grading.sandbox import kernel

# name: (number on x86-64, number on aarch64)
DENIED = {
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "mount_setattr": (442, 442),
}
_CLONE, _CLONE3, _SOCKET = (56, 220), (435, 435), (41, 198)
_NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW… flag but the time namespace, which is not one of clone's
_FAMILIES = (1, 2, 10, 16)  # unix, IPv4, IPv6, netlink: those that the network namespace encloses; never vsock

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def program(column: int, architecture: int) -> bytes:
    """The filter, as the kernel's own little instructions."""
    lines: list[tuple[int, int, int, int]] = []

    def add(code: int, jump_true: int, jump_false: int, value: int) -> None:
        lines.append((code, jump_true, jump_false, value))

    def refuse(number: int) -> None:
        add(_RETURN, 0, 0, _ERRNO | number)

    add(_LOAD, 0, 0, 4)  # the architecture
    add(_EQUAL, 1, 0, architecture)
    refuse(errno.EPERM)
    add(_LOAD, 0, 0, 0)  # the call's number
    add(_AT_LEAST, 0, 1, 0x40000000)  # the x32 numbering would evade the list
    refuse(errno.EPERM)
    for numbers in DENIED.values():
        add(_EQUAL, 0, 1, numbers[column])
        refuse(errno.EPERM)
    add(_EQUAL, 0, 1, _CLONE3[column])  # its flags lie behind a pointer; libc falls back to clone
    refuse(errno.ENOSYS)
    add(_EQUAL, 0, 3, _CLONE[column])
    add(_LOAD, 0, 0, 16)  # the first argument
    add(_ANY_BIT, 0, 1, _NEW_NAMESPACES)
    refuse(errno.EPERM)
    add(_LOAD, 0, 0, 0)
    add(_EQUAL, 0, len(_FAMILIES) + 2, _SOCKET[column])
    add(_LOAD, 0, 0, 16)
    for ahead, family in zip(range(len(_FAMILIES), 0, -1), _FAMILIES, strict=True):
        add(_EQUAL, ahead, 0, family)  # to the line after the refusal
    refuse(errno.EAFNOSUPPORT)
    add(_RETURN, 0, 0, _ALLOW)
    return b"".join(struct.pack("<HBBI", *line) for line in lines)


def install() -> bool:
    """Puts the filter on this process and its children; False where the machine is of another kind."""
    if platform.machine() not in _ARCHITECTURES:
        return False
    column, architecture = _ARCHITECTURES[platform.machine()]
    code = program(column, architecture)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    holder = ctypes.create_string_buffer(header, len(header))
    return kernel.prctl(22, 2, ctypes.addressof(holder)) == 0
