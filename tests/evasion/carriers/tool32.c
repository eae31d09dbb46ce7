/* The i386 carrier: a 32-bit program without a C library, so that it builds with plain `gcc -m32 -nostdlib` where the
 * 32-bit headers are missing. Every call goes through int 0x80, which a filter of 64-bit numbers alone does not see.
 *
 * Exit status as in tool.c. Where the system refuses the whole ABI, even exit() is refused: the program then ends by an
 * illegal instruction, and the test accepts that signal.
 */
static int call(int number, int a, int b, int c)
{
    int result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
    return result;
}

enum { NR_exit = 1, NR_fork, NR_read, NR_write, NR_open, NR_close, NR_waitpid, NR_creat, NR_link, NR_unlink, NR_execve,
       NR_chdir, NR_chmod = 15, NR_kill = 37, NR_rename = 38, NR_ptrace = 26, NR_mkdir = 39, NR_utime = 30,
       NR_truncate = 92, NR_socketcall = 102, NR_socket = 359, NR_connect = 362 };
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
EFFECT(write_truncate) { return done(call(NR_truncate, (int)"elsewhere/existing.txt", 3, 0)); }
EFFECT(write_hard_link) { return done(call(NR_link, (int)"elsewhere/existing.txt", (int)"output/report.txt", 0)); }
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
