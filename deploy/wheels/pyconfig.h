/* pyconfig.h of every target for which deploy/wheels.py compiles.
 *
 * With Py_LIMITED_API the headers of Python are the same on all of these platforms but for this
 * file, and read no more of it than the macros below (Python 3.10 to 3.14). Sizes and the order of
 * bytes are those of the compiler for its target, so they cannot be those of another machine. The
 * rest holds on every POSIX system. Py_DEBUG, Py_TRACE_REFS and Py_GIL_DISABLED, which change
 * objects, are not defined: wheels with abi3 are for builds without them. */
#ifndef Py_PYCONFIG_H
#define Py_PYCONFIG_H

#if !defined(__LP64__) || !defined(__SIZEOF_POINTER__)
#error "an unknown target: its sizes were never compared"
#endif

#define SIZEOF_SHORT __SIZEOF_SHORT__
#define SIZEOF_INT __SIZEOF_INT__
#define SIZEOF_LONG __SIZEOF_LONG__
#define SIZEOF_LONG_LONG __SIZEOF_LONG_LONG__
#define SIZEOF_LONG_DOUBLE __SIZEOF_LONG_DOUBLE__
#define SIZEOF_FLOAT __SIZEOF_FLOAT__
#define SIZEOF_DOUBLE __SIZEOF_DOUBLE__
#define SIZEOF_SIZE_T __SIZEOF_SIZE_T__
#define SIZEOF_VOID_P __SIZEOF_POINTER__
#define SIZEOF_UINTPTR_T __SIZEOF_POINTER__
#define SIZEOF_WCHAR_T __SIZEOF_WCHAR_T__
#define SIZEOF_PID_T __SIZEOF_INT__ /* int in glibc, musl and macOS */
#define ALIGNOF_MAX_ALIGN_T __BIGGEST_ALIGNMENT__
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define WORDS_BIGENDIAN 1
#endif

/* What the C library declares beside the C standard, as in every configuration of CPython. */
#define _GNU_SOURCE 1
#define _DARWIN_C_SOURCE 1

#define HAVE_ERRNO_H 1
#define HAVE_SSIZE_T 1
#define HAVE_SYS_SELECT_H 1
#define HAVE_SYS_STAT_H 1
#define HAVE_SYS_TIME_H 1
#define HAVE_SYS_TYPES_H 1
#define HAVE_WCHAR_H 1
#define HAVE_COPYSIGN 1
#define HAVE_HYPOT 1
#define HAVE_ROUND 1
#define HAVE_DECL_ISFINITE 1
#define HAVE_DECL_ISINF 1
#define HAVE_DECL_ISNAN 1
#define TIME_WITH_SYS_TIME 1
#define WITH_DOC_STRINGS 1

#endif
