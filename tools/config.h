/* What an option is without being named: a configuration file, the environment, a preset. */
#pragma once
#include "tools/options.h"

/* Sets options of o, which have their defaults, from below: the preset that the file or the environment names, the file ($INFER_CONFIG or --config; else
 * $XDG_CONFIG_HOME/infer/config.ini, ~/.config/infer/config.ini where it is there), INFER_NAME of the environment, --preset. flags: the command
 * line, which comes on top and says --config, --preset and the model. errors: INFER_E_INPUT with file and line, INFER_E_IO */
enum infer_status config_apply(struct options *o, const struct options *flags);
/* The file that is read where nothing else is named, into path[n]; whether it is there. */
bool config_path(char *path, size_t n);
/* Every option of o's command as the lines of such a file, with where its value is from. */
void config_print(FILE *out, const struct options *o);

/* ---- a file of presets: several models, each with options of its own ---- */

/* Calls `each` for every model that the file has a section of, [NAME] or [model NAME], in their order; patterns (*, ?) are none. errors:
 * INFER_E_INPUT with file and line, INFER_E_IO, those of each */
enum infer_status config_presets(const struct options *o, const char *file,
                                 enum infer_status (*each)(void *user, const char *name), void *user);
/* The options of model `name`, at path (NULL: its section says), of o's command: as config_apply has them, then what the file (NULL: none) says of all
 * ([*], or above the first section), of the command and of the model, then the environment and the command line of o. Texts of o are shared; free
 * with options_free. */
enum infer_status config_member(struct options *out, const struct options *o, const char *file,
                                const char *name, const char *path);
