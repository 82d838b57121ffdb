"""Numbers of the system calls that matter for sandboxed code, on x86_64 and aarch64."""

_READ_TABLE = """
read 0 63; write 1 64; readv 19 65; writev 20 66; pread64 17 67; pwrite64 18 68; preadv 295 69; pwritev 296 70
open 2 -; openat 257 56; openat2 437 437; close 3 57; close_range 436 436; stat 4 -; fstat 5 80; lstat 6 -
newfstatat 262 79; statx 332 291; statfs 137 43; fstatfs 138 44; lseek 8 62; access 21 -; faccessat 269 48
faccessat2 439 439; readlink 89 -; readlinkat 267 78; getcwd 79 17; chdir 80 49; fchdir 81 50; getdents 78 -
getdents64 217 61; umask 95 166; fadvise64 221 223; sendfile 40 71; mmap 9 222; munmap 11 215
mprotect 10 226; mremap 25 216; brk 12 214; madvise 28 233; msync 26 227; rt_sigaction 13 134
rt_sigprocmask 14 135; rt_sigreturn 15 139; rt_sigpending 127 136; rt_sigtimedwait 128 137; rt_sigsuspend 130 133
sigaltstack 131 132; pause 34 -; pipe 22 -; pipe2 293 59; dup 32 23; dup2 33 -; dup3 292 24; eventfd2 290 19
select 23 -; pselect6 270 72; poll 7 -; ppoll 271 73; epoll_create 213 -; epoll_create1 291 20; epoll_ctl 233 21
epoll_wait 232 -; epoll_pwait 281 22; recvfrom 45 207; shutdown 48 210; getsockname 51 204
getpeername 52 205; getpid 39 172; getppid 110 173; gettid 186 178; getuid 102 174; geteuid 107 175; getgid 104 176
getegid 108 177; getresuid 118 148; getresgid 120 150; getgroups 115 158; getpgrp 111 -; getpgid 121 155
getsid 124 156; getpriority 140 141; clock_gettime 228 113; clock_getres 229 114; clock_nanosleep 230 115
nanosleep 35 101; gettimeofday 96 169; time 201 -; times 100 153; getitimer 36 102; setitimer 38 103; alarm 37 -
getrusage 98 165; getrlimit 97 163; setrlimit 160 164; uname 63 160; sysinfo 99 179; getrandom 318 278
sched_yield 24 124; sched_getaffinity 204 123; getcpu 309 168; wait4 61 260; waitid 247 95; exit 60 93
exit_group 231 94; futex 202 98; set_robust_list 273 99; set_tid_address 218 96; rseq 334 293; membarrier 324 283
arch_prctl 158 -; restart_syscall 219 128
"""
_WRITE_TABLE = """
creat 85 -; mkdir 83 -; mkdirat 258 34; rmdir 84 -; unlink 87 -; unlinkat 263 35; rename 82 -; renameat 264 38
renameat2 316 276; link 86 -; linkat 265 37; symlink 88 -; symlinkat 266 36; chmod 90 -; fchmod 91 52
fchmodat 268 53; utime 132 -; utimes 235 -; utimensat 280 88; futimesat 261 -; truncate 76 45; ftruncate 77 46
fallocate 285 47; fsync 74 82; fdatasync 75 83; copy_file_range 326 285
"""
_SPECIAL = """
ioctl 16 29; fcntl 72 25; prctl 157 167; kill 62 129; tgkill 234 131; prlimit64 302 261; socketpair 53 199
sendto 44 206; getsockopt 55 209; clone 56 220; clone3 435 435; execve 59 221; getxattr 191 8; lgetxattr 192 9
fgetxattr 193 10; listxattr 194 11; llistxattr 195 12; flistxattr 196 13
"""


def _table(text: str) -> dict[str, tuple[int | None, int | None]]:
    rows = (row.split() for row in text.replace("\n", ";").split(";") if row)
    return {name: (_number(intel), _number(arm)) for name, intel, arm in rows}


def _number(text: str) -> int | None:
    return None if text == "-" else int(text)


READ_CALLS = _table(_READ_TABLE)
"""Calls for reading, computing and waiting, as name -> number on x86_64 and on aarch64, None if there is none."""
WRITE_CALLS = _table(_WRITE_TABLE)
"""Calls that change files, for sandboxes in which all reachable files belong to the evaluation."""
SPECIAL = _table(_SPECIAL)
"""Calls that are allowed depending on their arguments, or fail with a special error."""
