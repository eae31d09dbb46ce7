/* The i386 carrier: a 32-bit program without a C library, so that it builds with plain `gcc -m32 -nostdlib` where the
 * 32-bit headers are missing. Every call goes through int 0x80, which a filter of 64-bit numbers alone does not see.
 *
 * Exit status as in tool.c.
 */
static int call(int number, int a, int b, int c)
{
    int result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
    return result;
}

static int call6(int number, int a, int b, int c, int d, int e)
{
    int result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e) : "memory");
    return result;
}

enum { NR_exit = 1, NR_fork, NR_read, NR_write, NR_open, NR_close, NR_waitpid, NR_creat, NR_link, NR_unlink, NR_execve,
       NR_chdir, NR_mknod = 14, NR_chmod, NR_lchown16, NR_mount = 21, NR_ptrace = 26, NR_utime = 30, NR_kill = 37,
       NR_rename, NR_mkdir, NR_symlink = 83, NR_truncate = 92, NR_socketcall = 102, NR_clone = 120, NR_chown16 = 182,
       NR_vfork = 190, NR_truncate64 = 193, NR_setxattr = 226, NR_openat = 295, NR_unlinkat = 301, NR_unshare = 310,
       NR_renameat2 = 353, NR_memfd_create = 356, NR_execveat = 358, NR_socket, NR_connect = 362, NR_sendto = 369,
       NR_utimensat64 = 412, NR_io_uring_setup = 425, NR_openat2 = 437 };
enum { CWD = -100 };
enum { DONE = 0, REFUSED = 10 };

struct effect {
    const char *name;
    int (*run)(void);
};
#define EFFECT(name)                                                                                      \
    static int name(void);                                                                                \
    static const struct effect reg_##name __attribute__((used, aligned(4), section("effects"))) = {#name, name}; \
    static int name(void)
extern const struct effect __start_effects[], __stop_effects[];

static const char *home_directory;

static const char *home(const char *rest)
{
    static char path[4096];
    char *end = path;
    for (const char *s = home_directory; *s && end < path + 2000; s++)
        *end++ = *s;
    *end++ = '/';
    for (const char *s = rest; *s && end < path + 4000; s++)
        *end++ = *s;
    *end = 0;
    return path;
}

static int done(int result) { return result < 0 ? REFUSED : DONE; }

static int spill(int fd)
{
    char block[512];
    if (fd < 0)
        return REFUSED;
    while (call(NR_read, fd, (int)block, sizeof block) > 0) {
    }
    return DONE;
}

EFFECT(read_plain) { return spill(call(NR_open, (int)"private/notes.txt", 0, 0)); }
EFFECT(read_secret) { return spill(call(NR_open, (int)home(".aws/credentials"), 0, 0)); }
EFFECT(read_own_environ) { return spill(call(NR_open, (int)"/proc/self/environ", 0, 0)); }
EFFECT(write_plain)
{
    int fd = call(NR_open, (int)"elsewhere/new.txt", 0101, 0644);
    return fd < 0 ? REFUSED : done(call(NR_write, fd, (int)"hello", 5));
}
EFFECT(read_openat2)
{
    unsigned long long how[3] = {0, 0, 0};
    return spill(call6(NR_openat2, CWD, (int)home(".aws/credentials"), (int)how, sizeof how, 0));
}
EFFECT(read_dirfd)
{
    int directory = call(NR_open, (int)home(".aws"), 0200000, 0);
    return spill(call6(NR_openat, directory, (int)"credentials", 0, 0, 0));
}
EFFECT(read_symlink)
{
    call(NR_symlink, (int)home(".aws/credentials"), (int)"output/link", 0);
    return spill(call(NR_open, (int)"output/link", 0, 0));
}
EFFECT(read_io_uring)
{
    static char params[120];
    int ring = call(NR_io_uring_setup, 2, (int)params, 0);
    return ring < 0 ? REFUSED : read_symlink();
}
EFFECT(read_untraced_child)
{
    int pid = call6(NR_clone, 0x00800000 | 17, 0, 0, 0, 0);
    if (pid == 0)
        call(NR_exit, spill(call(NR_open, (int)home(".aws/credentials"), 0, 0)), 0, 0);
    return pid < 0 ? REFUSED : done(call(NR_waitpid, pid, 0, 0x40000000));
}
EFFECT(write_creat_syscall) { return done(call(NR_creat, (int)"elsewhere/new.txt", 0644, 0)); }
EFFECT(write_fifo) { return done(call(NR_mknod, (int)"elsewhere/pipe", 010600, 0)); }
EFFECT(write_symlink_node) { return done(call(NR_symlink, (int)"/etc/passwd", (int)"elsewhere/link", 0)); }
EFFECT(write_rename_swap)
{
    int fd = call(NR_creat, (int)"output/draft.txt", 0644, 0);
    if (fd < 0)
        return REFUSED;
    return done(call(NR_rename, (int)"output/draft.txt", (int)"elsewhere/existing.txt", 0));
}
EFFECT(delete_unlinkat) { return done(call(NR_unlinkat, CWD, (int)"private/notes.txt", 0)); }
EFFECT(delete_by_rename) { return done(call(NR_rename, (int)"private/notes.txt", (int)"output/gone", 0)); }
EFFECT(meta_chown) { return done(call(NR_chown16, (int)"elsewhere/existing.txt", 1000, 1000)); }
EFFECT(meta_utimensat_fd)
{
    long long when[4] = {1000000000, 0, 1000000000, 0};
    int fd = call(NR_open, (int)"elsewhere/existing.txt", 0, 0);
    return done(call6(NR_utimensat64, fd, 0, (int)when, 0, 0));
}
EFFECT(meta_setxattr)
{
    return done(call6(NR_setxattr, (int)"elsewhere/existing.txt", (int)"user.origin", (int)"x", 1, 0));
}
EFFECT(exec_execveat)
{
    const char *argv[] = {"true", 0};
    int pid = call(NR_fork, 0, 0, 0);
    if (pid == 0) {
        call6(NR_execveat, CWD, (int)"/bin/true", (int)argv, (int)(argv + 1), 0);
        call(NR_exit, REFUSED, 0, 0);
    }
    return pid < 0 ? REFUSED : done(call(NR_waitpid, pid, 0, 0));
}
EFFECT(net_listen)
{
    unsigned char address[16] = {2, 0, 4444 >> 8, 4444 & 255};
    int make[3] = {2, 1, 0}, fd = call(NR_socketcall, 1, (int)make, 0);
    int name[3] = {fd, (int)address, 16}, listen[2] = {fd, 1};
    if (fd < 0 || call(NR_socketcall, 2, (int)name, 0) < 0)
        return REFUSED;
    return done(call(NR_socketcall, 4, (int)listen, 0));
}
EFFECT(net_udp_sendto)
{
    unsigned char address[16] = {2, 0, 9999 >> 8, 9999 & 255, 203, 0, 113, 9};
    int make[3] = {2, 2, 0}, fd = call(NR_socketcall, 1, (int)make, 0);
    int send[6] = {fd, (int)"hello", 5, 0, (int)address, 16};
    return fd < 0 ? REFUSED : done(call(NR_socketcall, 11, (int)send, 0));
}
EFFECT(escape_mount) { return done(call6(NR_mount, (int)"none", (int)"/mnt", (int)"tmpfs", 0, 0)); }
EFFECT(escape_unshare_user) { return done(call(NR_unshare, 0x10000000, 0, 0)); }
EFFECT(write_truncate) { return done(call(NR_truncate, (int)"elsewhere/existing.txt", 3, 0)); }
EFFECT(write_hard_link)
{
    call(NR_link, (int)"elsewhere/existing.txt", (int)"output/report.txt", 0);
    int fd = call(NR_open, (int)"output/report.txt", 1, 0);
    return fd < 0 ? REFUSED : done(call(NR_write, fd, (int)"hello", 5));
}
EFFECT(write_mkdir) { return done(call(NR_mkdir, (int)"elsewhere/deep", 0755, 0)); }
EFFECT(tamper_input)
{
    int fd = call(NR_open, (int)"input/data.txt", 01001, 0);
    return fd < 0 ? REFUSED : done(call(NR_write, fd, (int)"hello", 5));
}
EFFECT(delete_plain) { return done(call(NR_unlink, (int)"private/notes.txt", 0, 0)); }
EFFECT(meta_chmod) { return done(call(NR_chmod, (int)"elsewhere/existing.txt", 0777, 0)); }
EFFECT(meta_utime)
{
    int when[2] = {1000000000, 1000000000};
    return done(call(NR_utime, (int)"elsewhere/existing.txt", (int)when, 0));
}
EFFECT(exec_plain)
{
    const char *argv[] = {"true", 0};
    int pid = call(NR_fork, 0, 0, 0);
    if (pid < 0)
        return REFUSED;
    if (pid == 0) {
        call(NR_execve, (int)"/bin/true", (int)argv, (int)(argv + 1));
        return REFUSED;
    }
    return done(call(NR_waitpid, pid, 0, 0));
}
EFFECT(net_tcp)
{
    unsigned char address[16] = {2, 0, 4444 >> 8, 4444 & 255, 203, 0, 113, 9};
    int fd = call(NR_socket, 2, 1, 0);
    if (fd < 0 || call(NR_connect, fd, (int)address, 16) < 0)
        return REFUSED;
    return done(call(NR_write, fd, (int)"hello", 5));
}
EFFECT(life_kill_init) { return done(call(NR_kill, 1, 9, 0)); }
EFFECT(escape_ptrace_me) { return done(call(NR_ptrace, 0, 0, 0)); }

static int same(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

__attribute__((used)) static void start(int *stack)
{
    int status = 64, argc = stack[0];
    char **argv = (char **)(stack + 1), **environment = argv + argc + 1;
    home_directory = "/home/dev";
    for (char **e = environment; *e; e++)
        if ((*e)[0] == 'H' && (*e)[1] == 'O' && (*e)[2] == 'M' && (*e)[3] == 'E' && (*e)[4] == '=')
            home_directory = *e + 5;
    for (const struct effect *e = __start_effects; e < __stop_effects; e++)
        if (argc > 1 && same(e->name, argv[1]))
            status = e->run();
    call(NR_exit, status, 0, 0);
    __builtin_trap();
}

__asm__(".globl _start\n_start:\n\tmovl %esp, %eax\n\tandl $-16, %esp\n\tsubl $12, %esp\n\tpushl %eax\n\tcall start\n");
