/* Parts of the hub's client. */
#pragma once
#include "tools/hub/hub.h"
#include "tools/net/http.h"

enum { HUB_PATH = 4096, HUB_ID = 65, HUB_FILES = 20000, HUB_TRIES = 6 /* in a row that bring nothing */ };

/* A file of a repository. id: SHA-256 of its bytes (large), else SHA-1 of the git blob. */
struct hub_file {
    char *path;
    uint64_t size;
    char id[HUB_ID];
    bool large;
};
struct hub_repo {
    char commit[HUB_ID];
    struct hub_file *file;
    int n;
};
void hub_repo_free(struct hub_repo *r);
/* Adds a file; path is copied. */
enum infer_status hub_repo_add(struct hub_repo *r, const char *path, uint64_t size, const char *id,
                               bool large);

/* hub_cache.c: the value of a variable that names a folder and what is under it into to[n], with $HOME for "~"; false: it is not set */
bool hub_path_in(const char *variable, const char *under, char *to, size_t n);
/* the cache's folder; a repository's folder, "models--org--name" in it */
enum infer_status hub_cache(char *to, size_t n);
enum infer_status hub_folder(const char *repo, char *to, size_t n);
/* folder/name, refused where it is too long */
enum infer_status hub_join(char *to, size_t n, const char *folder, const char *name);
/* Makes the folders above a path. */
enum infer_status hub_make_parents(const char *path);
bool hub_offline(void);
/* Takes .locks/REPO/WHAT.lock, how: LOCK_SH, LOCK_EX; *fd -1: another program has it. A blob's is LOCK_EX for whoever fetches it, HUB_WHOLE LOCK_SH
 * for who brings files of a repository until they are linked, LOCK_EX for who removes some. */
#define HUB_WHOLE "infer"
enum infer_status hub_lock(const char *folder, const char *what, int how, int *fd);
/* The commit that a revision is, as the cache knows it; "" unknown. */
void hub_ref_read(const char *folder, const char *revision, char commit[HUB_ID]);
enum infer_status hub_ref_write(const char *folder, const char *revision, const char *commit);
/* snapshots/COMMIT/path -> the blob; replaces what is there. */
enum infer_status hub_link(const char *folder, const char *commit, const struct hub_file *f);
/* What lies in a snapshot whole: paths and sizes. */
enum infer_status hub_snapshot(const char *folder, const char *commit, struct hub_repo *out);

/* hub_repo.c: what a repository holds, asked of the hub */
enum infer_status hub_repo_ask(const struct hub_name *name, const struct hub_calls *c, struct hub_repo *out);
/* The address of a file. */
enum infer_status hub_url(const struct hub_name *name, const char *commit, const char *path, char *to,
                          size_t n);
const char *hub_token(void);
/* An answer that is none, as a message. */
enum infer_status hub_refusal(const struct http_answer *a, const char *repo, const char *what);
/* Seconds after which it is worth to ask again, behind so many answers that were none; below 0: never (it says no, or to come in more than
 * a minute). */
double hub_again(const struct http_answer *a, int tries);
void hub_rest(double seconds);

/* hub_choose.c: a model among the files */
struct hub_variant {
    char type[40];     /* Q4_K_M; "" where the name says none */
    const char *first; /* path of its (first) file */
    uint64_t bytes;    /* of all of them */
};
/* GGUF models of a repository, the largest first; of several parts one. *n: how many, of at most most. */
void hub_variants(const struct hub_repo *r, struct hub_variant *v, int most, int *n);
/* Files of the model: wanted[r->n], and which is its path (-1: the folder). header: gives a file with the first bytes of one, for the plan;
 * NULL: files are there. */
struct hub_choice {
    bool *wanted;
    int main; /* file that is the path; -1: the folder */
};
enum infer_status hub_choose(const struct hub_name *name, const struct hub_repo *r, const struct hub_calls *c,
                             enum infer_status (*header)(void *user, const struct hub_file *f, char *path,
                                                         size_t n),
                             void *user, struct hub_choice *out);

/* hub_fetch.c: one file into blobs/ID, checked. before, total: bytes of all files, for progress */
enum infer_status hub_fetch(const struct hub_name *name, const char *commit, const struct hub_file *f,
                            const struct hub_calls *c, const char *folder, double before, double total);
/* Whether the blob is there whole; bytes of it that have come. */
bool hub_has(const char *folder, const struct hub_file *f, uint64_t *have);
/* hub_hash.c: hash of a file's bytes so far */
struct hub_hash;
enum infer_status hub_hash_new(struct hub_hash **out, const struct hub_file *f);
void hub_hash_add(struct hub_hash *h, const void *data, size_t n);
/* Whether it is f's; frees. */
bool hub_hash_end(struct hub_hash *h, const struct hub_file *f);
