/*
 * What a folder would be after a loss of power: preloaded (LD_PRELOAD) into every process that uses the folder
 * POWER_LOSS_FOLDER, it keeps in the folder POWER_LOSS_SHADOW what is on the disk for certain. power-loss.ts makes the
 * shadow before, and reads it afterwards.
 *
 *   lock            locked (flock) for each change of the shadow
 *   control         three numbers of 8 bytes, mapped by all processes: whether the power is off; after how many more
 *                   changes it goes off (0: never); how many changes there have been
 *   boot-id         what the processes read as the id of the boot
 *   numbers/INODE   how often this inode was created: a file system uses the number of a deleted file again
 *   contents/FILE   of each file that was synced, as it was then; FILE is "INODE.NUMBER"
 *   names/FOLDER    of each folder that was synced, as it was then: lines of a kind (f, d), a FILE or FOLDER, and a name
 *
 * fsync() and fdatasync() of a file copy it, fsync() of a folder copies its names, and nothing else does: a file may be
 * on the disk without its name, and a name without its file. When the power is off, the next change ends its process.
 * Other calls that change a file do no more than count: what they have changed is the difference from the shadow.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAX_FD 4096
#define PATH_SIZE 4096
#define BOOT_ID "/proc/sys/kernel/random/boot_id"

struct control {
  _Atomic long long is_off;
  _Atomic long long left;
  _Atomic long long count;
};

static const char *disk = NULL;
static const char *shadow = NULL;
static struct control *control = NULL;
/* Which descriptors of this process are open files and folders of the disk. */
static atomic_char on_disk[MAX_FD];

/* System calls without a detour over the functions below. */
static int sys_open(int at, const char *path, int flags, mode_t mode) {
  return (int)syscall(SYS_openat, at, path, flags, mode);
}

static int sys_close(int fd) { return (int)syscall(SYS_close, fd); }

static ssize_t sys_write(int fd, const void *bytes, size_t size) { return syscall(SYS_write, fd, bytes, size); }

static int sys_rename(const char *from, const char *to) {
  return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

__attribute__((constructor)) static void begin(void) {
  char path[PATH_SIZE];
  disk = getenv("POWER_LOSS_FOLDER");
  shadow = getenv("POWER_LOSS_SHADOW");
  if (disk == NULL || shadow == NULL) return;
  snprintf(path, sizeof path, "%s/control", shadow);
  int fd = sys_open(AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
  if (fd < 0) return;
  void *mapped = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  sys_close(fd);
  if (mapped != MAP_FAILED) control = mapped;
}

static void fail(const char *what) {
  char line[PATH_SIZE];
  int size = snprintf(line, sizeof line, "power-loss.c: %s: %s\n", what, strerror(errno));
  sys_write(2, line, (size_t)size);
  abort();
}

/* Before each change of the disk. */
static void change(void) {
  atomic_fetch_add(&control->count, 1);
  if (atomic_load(&control->left) > 0 && atomic_fetch_sub(&control->left, 1) == 1) atomic_store(&control->is_off, 1);
  if (!atomic_load(&control->is_off)) return;
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

static int is_on_disk(int fd) {
  return control != NULL && fd >= 0 && fd < MAX_FD && atomic_load(&on_disk[fd]);
}

static int is_path_on_disk(const char *path) {
  char whole[2 * PATH_SIZE];
  size_t length;
  if (control == NULL || path == NULL) return 0;
  if (path[0] == '/') snprintf(whole, sizeof whole, "%s", path);
  else {
    char here[PATH_SIZE];
    if (getcwd(here, sizeof here) == NULL) return 0;
    snprintf(whole, sizeof whole, "%s/%s", here, path);
  }
  length = strlen(disk);
  return strncmp(whole, disk, length) == 0 && (whole[length] == '/' || whole[length] == 0);
}

static int lock_shadow(void) {
  char path[PATH_SIZE];
  snprintf(path, sizeof path, "%s/lock", shadow);
  int fd = sys_open(AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
  if (fd < 0 || syscall(SYS_flock, fd, LOCK_EX) != 0) fail("lock");
  return fd;
}

static long long read_number(ino_t inode) {
  char path[PATH_SIZE];
  char text[32] = "";
  snprintf(path, sizeof path, "%s/numbers/%llu", shadow, (unsigned long long)inode);
  int fd = sys_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
  if (fd < 0) return 0;
  if (syscall(SYS_read, fd, text, sizeof text - 1) < 0) fail("numbers");
  sys_close(fd);
  return atoll(text);
}

static void write_number(ino_t inode, long long number) {
  char path[PATH_SIZE];
  char text[32];
  snprintf(path, sizeof path, "%s/numbers/%llu", shadow, (unsigned long long)inode);
  int fd = sys_open(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  int size = snprintf(text, sizeof text, "%lld", number);
  if (fd < 0 || sys_write(fd, text, (size_t)size) != size) fail("numbers");
  sys_close(fd);
}

/* A file of the shadow, which gets its name when it is complete: its process may be killed at any time. */
struct copy {
  char temporary[PATH_SIZE];
  char path[PATH_SIZE];
  int fd;
};

static void begin_copy(struct copy *copy, const char *folder, ino_t inode) {
  snprintf(copy->temporary, PATH_SIZE, "%s/new", shadow);
  snprintf(copy->path, PATH_SIZE, "%s/%s/%llu.%lld", shadow, folder, (unsigned long long)inode, read_number(inode));
  copy->fd = sys_open(AT_FDCWD, copy->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (copy->fd < 0) fail("copy");
}

static void end_copy(struct copy *copy) {
  sys_close(copy->fd);
  if (sys_rename(copy->temporary, copy->path) != 0) fail("copy");
}

static void sync_file(int fd, const struct stat *stat) {
  struct copy copy;
  char buffer[65536];
  off_t at = 0;
  int source = fd;
  /* Not opened again if it can be read: closing a second descriptor ends the locks (fcntl) of the process on the file. */
  if ((fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    source = sys_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (source < 0) fail("sync");
  }
  begin_copy(&copy, "contents", stat->st_ino);
  for (;;) {
    ssize_t size = syscall(SYS_pread64, source, buffer, sizeof buffer, at);
    if (size < 0) fail("sync");
    if (size == 0) break;
    if (sys_write(copy.fd, buffer, (size_t)size) != size) fail("sync");
    at += size;
  }
  end_copy(&copy);
  if (source != fd) sys_close(source);
}

static void sync_folder(int fd, const struct stat *stat) {
  struct copy copy;
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  DIR *folder = opendir(path);
  if (folder == NULL) fail("sync of a folder");
  begin_copy(&copy, "names", stat->st_ino);
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    char line[PATH_SIZE];
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    int size = snprintf(line, sizeof line, "%c %llu.%lld %s\n", entry->d_type == DT_DIR ? 'd' : 'f',
                        (unsigned long long)entry->d_ino, read_number(entry->d_ino), entry->d_name);
    if (sys_write(copy.fd, line, (size_t)size) != size) fail("sync of a folder");
  }
  end_copy(&copy);
  closedir(folder);
}

/* The sync itself is left out: no power is lost, and waiting for a disk would only take time. */
static int sync_copy(int fd) {
  struct stat stat;
  change();
  if (fstat(fd, &stat) != 0) return -1;
  int lock = lock_shadow();
  if (S_ISDIR(stat.st_mode)) sync_folder(fd, &stat);
  else sync_file(fd, &stat);
  sys_close(lock);
  return 0;
}

int fsync(int fd) { return is_on_disk(fd) ? sync_copy(fd) : (int)syscall(SYS_fsync, fd); }

int fdatasync(int fd) { return is_on_disk(fd) ? sync_copy(fd) : (int)syscall(SYS_fdatasync, fd); }

static void note_opened(int fd) {
  char link[64];
  char path[PATH_SIZE];
  if (control == NULL || fd < 0 || fd >= MAX_FD) return;
  int failed = errno;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t size = readlink(link, path, sizeof path - 1);
  path[size > 0 ? size : 0] = 0;
  atomic_store(&on_disk[fd], path[0] == '/' && is_path_on_disk(path));
  errno = failed;
}

/* A file that this creates is another one than the deleted one whose inode it may get. */
static int create_on_disk(int at, const char *path, int flags, mode_t mode) {
  struct stat stat;
  change();
  int lock = lock_shadow();
  int is_new = fstatat(at, path, &stat, AT_SYMLINK_NOFOLLOW) != 0;
  int fd = sys_open(at, path, flags, mode);
  int failed = errno;
  if (fd >= 0 && is_new && fstat(fd, &stat) == 0) write_number(stat.st_ino, read_number(stat.st_ino) + 1);
  sys_close(lock);
  errno = failed;
  return fd;
}

static int open_any(int at, const char *path, int flags, mode_t mode) {
  char boot_id[PATH_SIZE];
  if (control != NULL && path != NULL && strcmp(path, BOOT_ID) == 0) {
    snprintf(boot_id, sizeof boot_id, "%s/boot-id", shadow);
    path = boot_id;
  }
  int is_change = (flags & (O_CREAT | O_TRUNC)) != 0 && is_path_on_disk(path);
  int fd = is_change ? create_on_disk(at, path, flags, mode) : sys_open(at, path, flags, mode);
  note_opened(fd);
  return fd;
}

#define MODE_OF(flags) \
  mode_t mode = 0; \
  if (((flags) & O_CREAT) != 0 || ((flags) & O_TMPFILE) == O_TMPFILE) { \
    va_list rest; \
    va_start(rest, flags); \
    mode = (mode_t)va_arg(rest, int); \
    va_end(rest); \
  }

int open(const char *path, int flags, ...) {
  MODE_OF(flags)
  return open_any(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
  MODE_OF(flags)
  return open_any(AT_FDCWD, path, flags, mode);
}

int openat(int at, const char *path, int flags, ...) {
  MODE_OF(flags)
  return open_any(at, path, flags, mode);
}

int openat64(int at, const char *path, int flags, ...) {
  MODE_OF(flags)
  return open_any(at, path, flags, mode);
}

int creat(const char *path, mode_t mode) { return open_any(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode); }

int creat64(const char *path, mode_t mode) { return creat(path, mode); }

int close(int fd) {
  if (fd >= 0 && fd < MAX_FD) atomic_store(&on_disk[fd], 0);
  return sys_close(fd);
}

#define CHANGE_OF(fd) if (is_on_disk(fd)) change()

ssize_t write(int fd, const void *bytes, size_t size) {
  CHANGE_OF(fd);
  return syscall(SYS_write, fd, bytes, size);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
  CHANGE_OF(fd);
  return syscall(SYS_writev, fd, parts, count);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at) {
  CHANGE_OF(fd);
  return syscall(SYS_pwrite64, fd, bytes, size, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at) {
  CHANGE_OF(fd);
  return syscall(SYS_pwrite64, fd, bytes, size, at);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
  CHANGE_OF(fd);
  return syscall(SYS_pwritev, fd, parts, count, (long)at, 0L);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
  CHANGE_OF(fd);
  return syscall(SYS_pwritev, fd, parts, count, (long)at, 0L);
}

int ftruncate(int fd, off_t size) {
  CHANGE_OF(fd);
  return (int)syscall(SYS_ftruncate, fd, size);
}

int ftruncate64(int fd, off64_t size) {
  CHANGE_OF(fd);
  return (int)syscall(SYS_ftruncate, fd, size);
}

int fallocate(int fd, int mode, off_t at, off_t size) {
  CHANGE_OF(fd);
  return (int)syscall(SYS_fallocate, fd, mode, at, size);
}

int fallocate64(int fd, int mode, off64_t at, off64_t size) {
  CHANGE_OF(fd);
  return (int)syscall(SYS_fallocate, fd, mode, at, size);
}

int rename(const char *from, const char *to) {
  if (is_path_on_disk(to)) change();
  return sys_rename(from, to);
}

int link(const char *from, const char *to) {
  if (is_path_on_disk(to)) change();
  return (int)syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlink(const char *path) {
  if (is_path_on_disk(path)) change();
  return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int unlinkat(int at, const char *path, int flags) {
  if (is_path_on_disk(path)) change();
  return (int)syscall(SYS_unlinkat, at, path, flags);
}
