# cmake/page.cmake - puts page.css and page.js of the folder FROM into its page.html, as the file PAGE;
# and writes the header OUT: PAGE_TAG, a name of this version, and PAGE_POLICY, what a browser may run
# of it: that script and that style, by their digests.
set(letters ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)

function(base64_digest file result)
  file(SHA256 ${file} hex)
  set(text "")
  foreach(at RANGE 0 60 6) # 3 bytes, 4 letters; at the end 2 bytes are left
    string(SUBSTRING ${hex}00 ${at} 6 three)
    math(EXPR bits "0x${three}")
    foreach(shift 18 12 6 0)
      math(EXPR letter "(${bits} >> ${shift}) & 63")
      string(SUBSTRING ${letters} ${letter} 1 letter)
      string(APPEND text ${letter})
    endforeach()
  endforeach()
  string(SUBSTRING ${text} 0 43 text)
  set(${result} "${text}=" PARENT_SCOPE)
endfunction()

base64_digest(${FROM}/page.css style)
base64_digest(${FROM}/page.js script)
file(READ ${FROM}/page.html html)
file(READ ${FROM}/page.css css)
file(READ ${FROM}/page.js js)
string(REPLACE "@STYLE@" "${css}" html "${html}")
string(REPLACE "@SCRIPT@" "${js}" html "${html}")
file(WRITE ${PAGE} "${html}")
file(SHA256 ${PAGE} tag)
string(SUBSTRING ${tag} 0 16 tag)
file(WRITE ${OUT} "/* Written by cmake/page.cmake. */
#define PAGE_TAG \"\\\"${tag}\\\"\"
#define PAGE_POLICY \\
    \"default-src 'none'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; \" \\
    \"form-action 'none'; frame-ancestors 'none'; script-src 'sha256-${script}'; \" \\
    \"style-src 'sha256-${style}'\"
")
