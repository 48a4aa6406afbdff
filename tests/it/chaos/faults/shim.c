/* Loaded before libc into a server under test: makes calls that write to files of one folder fail, come
 * short, or be the last ones of the process.
 *
 * FAULTS_FOLDER   the folder; calls on other files are left alone
 * FAULTS_KIND     fail, short, kill_before, kill_after
 * FAULTS_CALLS    write, sync or any: which calls count
 * FAULTS_FROM     the first call that is hit, counted from 1
 * FAULTS_COUNT    how many are hit in a row
 * FAULTS_ERRNO    what fail says, as a number
 * FAULTS_SWITCH   if set: calls count only while this file exists
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2 };
enum { NONE, FAIL, SHORT, KILL_BEFORE, KILL_AFTER };

static long calls;

static const char *setting(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}

static int is_ours(int fd) {
    const char *folder = setting("FAULTS_FOLDER");
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (*folder == 0 || length <= 0) return 0;
    path[length] = 0;
    return strncmp(path, folder, strlen(folder)) == 0;
}

/* What happens to this call. */
static int fault(int fd, int call) {
    int saved = errno, kind = NONE;
    const char *wanted = setting("FAULTS_CALLS"), *name = setting("FAULTS_KIND");
    int counts = strcmp(wanted, "any") == 0 || strcmp(wanted, call == WRITE ? "write" : "sync") == 0;
    const char *lever = setting("FAULTS_SWITCH");
    if (counts && is_ours(fd) && (*lever == 0 || access(lever, F_OK) == 0)) {
        long number = __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
        long from = atol(setting("FAULTS_FROM"));
        if (number >= from && number < from + atol(setting("FAULTS_COUNT"))) {
            if (strcmp(name, "fail") == 0) kind = FAIL;
            if (strcmp(name, "short") == 0) kind = call == WRITE ? SHORT : NONE;
            if (strcmp(name, "kill_before") == 0) kind = KILL_BEFORE;
            if (strcmp(name, "kill_after") == 0) kind = KILL_AFTER;
        }
    }
    errno = saved;
    return kind;
}

static void end(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define WRITING(name, parameters, arguments, shorter)       \
    ssize_t name parameters {                               \
        int kind = fault(fd, WRITE);                        \
        if (kind == KILL_BEFORE) end();                     \
        if (kind == FAIL) {                                 \
            errno = atoi(setting("FAULTS_ERRNO"));          \
            return -1;                                      \
        }                                                   \
        if (kind == SHORT && count > 1) return REAL(name) shorter; \
        ssize_t done = REAL(name) arguments;                \
        if (kind == KILL_AFTER) end();                      \
        return done;                                        \
    }

#define SYNCING(name)                                       \
    int name(int fd) {                                      \
        int kind = fault(fd, SYNC);                         \
        if (kind == KILL_BEFORE) end();                     \
        if (kind == FAIL) {                                 \
            errno = atoi(setting("FAULTS_ERRNO"));          \
            return -1;                                      \
        }                                                   \
        int done = REAL(name)(fd);                          \
        if (kind == KILL_AFTER) end();                      \
        return done;                                        \
    }

WRITING(write, (int fd, const void *text, size_t count), (fd, text, count), (fd, text, count / 2))
WRITING(pwrite, (int fd, const void *text, size_t count, off_t at), (fd, text, count, at), (fd, text, count / 2, at))
WRITING(pwrite64, (int fd, const void *text, size_t count, off64_t at), (fd, text, count, at), (fd, text, count / 2, at))
SYNCING(fsync)
SYNCING(fdatasync)
