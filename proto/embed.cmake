# Writes a file's bytes as the definition of a C array.
#   cmake -D IN=FILE -D OUT=FILE.c -D NAME=identifier -P embed.cmake
file(READ ${IN} digits HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${digits}")
file(WRITE ${OUT}
  "#include <stddef.h>\n#include <stdint.h>\n"
  "extern const uint8_t ${NAME}[];\nextern const size_t ${NAME}_bytes;\n"
  "const uint8_t ${NAME}[] = {${bytes}};\nconst size_t ${NAME}_bytes = sizeof ${NAME};\n")
