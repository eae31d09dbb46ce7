/* Races between a check and its use: one thread flips what another one hands to the kernel.
 *
 * racer KIND TRIES: prints "tries=N allowed=N leaked=N refused=N". "leaked" counts how often the denied object was
 * reached, told from what the program got (content, errno, peer), not from what it asked for.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile int running = 1;
static char path[64];
static struct sockaddr_in peer;
static const char *good, *bad;
static long allowed, leaked, refused;

static void *flip_path(void *unused)
{
    /* Same length, different in as few bytes as the names allow: a torn copy is no existing name. */
    size_t size = strlen(good) + 1;
    while (running) {
        memcpy(path, bad, size);
        memcpy(path, good, size);
    }
    return unused;
}

static void *flip_peer(void *unused)
{
    while (running) {
        ((volatile unsigned char *)&peer.sin_addr)[3] = 10;
        ((volatile unsigned char *)&peer.sin_addr)[3] = 9;
    }
    return unused;
}

static void *flip_link(void *unused)
{
    while (running) {
        if (syscall(SYS_renameat2, AT_FDCWD, "output/one", AT_FDCWD, "output/two", 2) < 0)
            usleep(100);
    }
    return unused;
}

static void tally(int fd)
{
    char first = 0;
    if (fd < 0) {
        refused++;
        return;
    }
    if (read(fd, &first, 1) == 1 && first == 'S')
        leaked++;
    else
        allowed++;
    close(fd);
}

static void count(long result) { result < 0 ? refused++ : allowed++; }

int main(int argc, char **argv)
{
    pthread_t thread;
    const char *kind = argc > 1 ? argv[1] : "open";
    long tries = argc > 2 ? atol(argv[2]) : 1000;
    void *(*flip)(void *) = flip_path;

    if (!strcmp(kind, "open") || !strcmp(kind, "link")) {
        /* A link to a file that may only be read would make it writable: the allowed source is one that may be written. */
        good = !strcmp(kind, "open") ? "input/public.txt" : "output/public.tx";
        bad = "denied/secret.tx";
    } else {
        good = "output/mark.txt";
        bad = "denied/mark.txt";
    }
    strcpy(path, good);
    memset(&peer, 0, sizeof peer);
    peer.sin_family = AF_INET;
    peer.sin_port = htons(80);
    inet_pton(AF_INET, "203.0.113.9", &peer.sin_addr);
    if (!strcmp(kind, "connect"))
        flip = flip_peer;
    if (!strcmp(kind, "symlink")) {
        flip = flip_link;
        if (symlink("../input/public.txt", "output/one") < 0 || symlink("../denied/secret.tx", "output/two") < 0)
            return 1;
    }
    if (pthread_create(&thread, NULL, flip, NULL))
        return 1;
    for (long i = 0; i < tries; i++) {
        if (!strcmp(kind, "open"))
            tally(open(path, O_RDONLY));
        else if (!strcmp(kind, "symlink"))
            tally(open("output/one", O_RDONLY));
        else if (!strcmp(kind, "link")) {
            long made = link(path, "output/linked");
            if (made < 0)
                refused++;
            else {
                tally(open("output/linked", O_RDONLY));
                unlink("output/linked");
            }
        } else if (!strcmp(kind, "chmod"))
            count(chmod(path, 0666));
        else if (!strcmp(kind, "write")) {
            int fd = open(path, O_WRONLY | O_TRUNC);
            count(fd);
            if (fd >= 0) {
                count(write(fd, "X", 1));
                close(fd);
            }
        } else if (!strcmp(kind, "rename")) {
            int fd = open("output/draft", O_WRONLY | O_CREAT, 0644);
            close(fd);
            count(rename("output/draft", path));
        } else if (!strcmp(kind, "connect")) {
            struct sockaddr_in got;
            socklen_t size = sizeof got;
            int fd = socket(AF_INET, SOCK_DGRAM, 0);
            if (connect(fd, (struct sockaddr *)&peer, sizeof peer) < 0 || getpeername(fd, (struct sockaddr *)&got, &size) < 0)
                refused++;
            else if ((ntohl(got.sin_addr.s_addr) & 255) == 10)
                leaked += send(fd, "leak", 4, 0) == 4;
            else
                allowed++;
            close(fd);
        } else
            return 64;
    }
    running = 0;
    pthread_join(thread, NULL);
    printf("tries=%ld allowed=%ld leaked=%ld refused=%ld\n", tries, allowed, leaked, refused);
    return 0;
}
