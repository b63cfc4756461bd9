/* The verbs: each has a file of its own name. argv[0] is the verb; the result is the exit status. */
#ifndef NRD_CTL_VERBS_H
#define NRD_CTL_VERBS_H

int nrd_verb_check(int argc, char **argv);
int nrd_verb_dump(int argc, char **argv);
int nrd_verb_topics(int argc, char **argv);
int nrd_verb_describe(int argc, char **argv);
int nrd_verb_export(int argc, char **argv);
int nrd_verb_import(int argc, char **argv);
int nrd_verb_delete(int argc, char **argv);
int nrd_verb_config(int argc, char **argv);
int nrd_verb_ctl(int argc, char **argv);
int nrd_verb_top(int argc, char **argv);
int nrd_verb_copy(int argc, char **argv);
int nrd_verb_bench(int argc, char **argv);

#endif
