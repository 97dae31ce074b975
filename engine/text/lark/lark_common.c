/* The terminals of Lark's module "common", by their names and languages.
 * source: lark/grammars/common.lark as documented at lark-parser.readthedocs.io */
#include <string.h>
#include "text/lark/lark_int.h"

const char lark_common[] = "c-DIGIT ::= [0-9]\n"
                           "c-HEXDIGIT ::= [0-9a-fA-F]\n"
                           "c-INT ::= [0-9]+\n"
                           "c-SIGNED_INT ::= [+\\-]? [0-9]+\n"
                           "c-DECIMAL ::= [0-9]+ \".\" [0-9]* | \".\" [0-9]+\n"
                           "c-_EXP ::= [eE] c-SIGNED_INT\n"
                           "c-FLOAT ::= [0-9]+ c-_EXP | c-DECIMAL c-_EXP?\n"
                           "c-SIGNED_FLOAT ::= [+\\-]? c-FLOAT\n"
                           "c-NUMBER ::= c-FLOAT | c-INT\n"
                           "c-SIGNED_NUMBER ::= [+\\-]? c-NUMBER\n"
                           "c-ESCAPED_STRING ::= \"\\\"\" ( [^\"\\\\\\n] | \"\\\\\" [^\\n] )* \"\\\"\"\n"
                           "c-LCASE_LETTER ::= [a-z]\n"
                           "c-UCASE_LETTER ::= [A-Z]\n"
                           "c-LETTER ::= [a-zA-Z]\n"
                           "c-WORD ::= [a-zA-Z]+\n"
                           "c-CNAME ::= [a-zA-Z_] [a-zA-Z_0-9]*\n"
                           "c-WS_INLINE ::= [ \\t]+\n"
                           "c-WS ::= [ \\t\\x0C\\r\\n]+\n"
                           "c-CR ::= \"\\r\"\n"
                           "c-LF ::= \"\\n\"\n"
                           "c-NEWLINE ::= ( \"\\r\"? \"\\n\" )+\n"
                           "c-SH_COMMENT ::= \"#\" [^\\n]*\n"
                           "c-CPP_COMMENT ::= \"//\" [^\\n]*\n"
                           "c-SQL_COMMENT ::= \"--\" [^\\n]*\n"
                           "c-C_COMMENT ::= \"/*\" ( [^*] | \"*\"+ [^*/] )* \"*\"+ \"/\"\n";

bool lark_common_has(const char *name, size_t n) {
    for (const char *line = lark_common; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, "c-", 2) == 0 && strncmp(line + 2, name, n) == 0 && line[2 + n] == ' ') return true;
    }
    return false;
}
