/* The rejected design, as a baseline: a supervisor that reads the path, checks it, and lets the kernel continue.
 *
 * naive DENIED PROGRAM ARGS...: runs PROGRAM under a seccomp listener that refuses to open paths containing DENIED and
 * continues all other opens. Between its check and the kernel's own read of the path, the path can change.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <poll.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc < 3)
        return 64;
    int ready[2], taken[2];
    char byte = 0;
    if (pipe(ready) < 0 || pipe(taken) < 0)
        return 1;
    pid_t child = fork();
    if (child == 0) {
        struct sock_filter code[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 1, 0),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_open, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {sizeof code / sizeof *code, code};
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        int listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
        /* The listener closes at exec: wait until the parent has its own copy. */
        if (listener < 0 || write(ready[1], &listener, sizeof listener) < 0 || read(taken[0], &byte, 1) != 1)
            _exit(1);
        execv(argv[2], argv + 2);
        _exit(127);
    }
    int remote, status = 1;
    close(ready[1]);
    if (read(ready[0], &remote, sizeof remote) != sizeof remote)
        return 1;
    int listener = (int)syscall(SYS_pidfd_getfd, syscall(SYS_pidfd_open, child, 0), remote, 0);
    if (listener < 0 || write(taken[1], &byte, 1) != 1)
        return 1;
    for (;;) {
        struct seccomp_notif call;
        struct seccomp_notif_resp answer;
        struct pollfd wait_ = {listener, POLLIN, 0};
        if (poll(&wait_, 1, 50) <= 0 || !(wait_.revents & POLLIN)) {
            if (waitpid(child, &status, WNOHANG) == child)
                break;
            continue;
        }
        memset(&call, 0, sizeof call);
        memset(&answer, 0, sizeof answer);
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) < 0)
            continue;
        char path[256] = "";
        struct iovec here = {path, sizeof path - 1};
        uint64_t address = call.data.nr == SYS_open ? call.data.args[0] : call.data.args[1];
        struct iovec there = {(void *)(uintptr_t)address, sizeof path - 1};
        ssize_t n = process_vm_readv((pid_t)call.pid, &here, 1, &there, 1, 0);
        path[n > 0 ? n : 0] = 0;
        answer.id = call.id;
        if (strstr(path, argv[1]))
            answer.error = -EACCES;
        else
            answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
