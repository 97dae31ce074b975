#!/usr/bin/env bash
# scripts/package over the build folder: what the .deb and the apt repository hold. Installing them is for scripts/try-packages.
# usage: package.sh BUILD TESTS
set -eu -o pipefail
build=$1 tests=$2 top=$2/..
for tool in ninja dpkg-deb dpkg-shlibdeps dpkg-scanpackages; do
    command -v "$tool" >/dev/null || { echo "no $tool here"; exit 77; }
done
grep -q '^CMAKE_GENERATOR:.*=Ninja' "$build/CMakeCache.txt" || { echo "no build of Ninja"; exit 77; }
dpkg -S libjansson.a >/dev/null 2>&1 || { echo "dpkg does not know what is linked"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

if command -v gpg >/dev/null && command -v gpgv >/dev/null; then
    export GNUPGHOME=$dir/gpg INFER_APT_KEY=test@example.org
    mkdir -m 700 "$GNUPGHOME"
    gpg --batch --quiet --passphrase '' --quick-gen-key $INFER_APT_KEY ed25519 sign never 2>"$dir/key" || fail "$(cat "$dir/key")"
fi
SOURCE_DATE_EPOCH=1700000000 "$top/scripts/package" --build "$build" --out "$dir/out" deb apt >"$dir/said"
deb=$(head -n 1 "$dir/said")
version=$("$build/infer" version | cut -d' ' -f2)
[ "$(dpkg-deb -f "$deb" Version)" = "$version" ] || fail "the version is $(dpkg-deb -f "$deb" Version), not $version"
[ "$(dpkg-deb -f "$deb" Depends | grep -o 'lib[a-z0-9]*' | sort -u)" = libc6 ] || fail "depends on $(dpkg-deb -f "$deb" Depends)"
dpkg-deb -R "$deb" "$dir/x"
[ "$(cat "$dir/x/DEBIAN/conffiles")" = /etc/infer/config.ini ] || fail "conffiles"
for script in postinst prerm postrm; do sh -n "$dir/x/DEBIAN/$script" || fail "$script"; done
(cd "$dir/x" && md5sum --quiet -c DEBIAN/md5sums) || fail "md5sums"
if dpkg-deb -c "$deb" | awk '$2 != "root/root" || $1 ~ /^.....w|^........w/' | grep .; then fail "of others than root, or for others to write"; fi
if dpkg-deb -c "$deb" | grep -v ' 2023-11-14 '; then fail "dates are not SOURCE_DATE_EPOCH"; fi
if grep -rlaF "$(cd "$top" && pwd)" "$dir/x"; then fail "names the folder where it was built"; fi
[ "$(INFER_CONFIG=$dir/x/etc/infer/config.ini "$dir/x/usr/bin/infer" serve --print-config | grep -vc '^#')" = 0 ] || fail "config.ini sets something"
sed -i 's/^# \(slots\|device\|model-name\)/\1/' "$dir/x/etc/infer/config.ini"
INFER_CONFIG=$dir/x/etc/infer/config.ini "$dir/x/usr/bin/infer" serve --print-config | grep -q '^slots = 16 ' || fail "config.ini: what is commented out is no option"

# ---- SBOM: well-formed, every relation between things that are there, every archive with a licence and its text
python3 - "$dir/x/usr/share/doc/$(dpkg-deb -f "$deb" Package)" "$version" <<'EOF'
import json, os, sys
folder, version = sys.argv[1:]
d = json.load(open(folder + "/infer.spdx.json"))
ids = {p["SPDXID"]: p for p in d["packages"]}
assert d["spdxVersion"] == "SPDX-2.3" and d["creationInfo"]["created"] == "2023-11-14T22:13:20Z", d["creationInfo"]
assert ids["SPDXRef-infer"]["versionInfo"] == version and len(ids) == len(d["packages"])
static = [r for r in d["relationships"] if r["relationshipType"] == "STATIC_LINK"]
for r in d["relationships"]: assert {r["spdxElementId"], r["relatedSpdxElement"]} <= set(ids) | {"SPDXRef-DOCUMENT"}, r
archives = " ".join(ids[r["relatedSpdxElement"]]["comment"] for r in static)
for name in "jansson", "pcre2-8", "utf8proc", "edit", "bsd", "md", "tinfo", "jpeg", "png16", "z", "webp", "gomp": assert "lib%s.a" % name in archives, name
for r in static:
    p = ids[r["relatedSpdxElement"]]
    assert p["licenseDeclared"] != "NOASSERTION" and p["versionInfo"], p
    if "externalRefs" in p: assert os.path.getsize(folder + "/licences/" + p["SPDXID"][8:]) > 500, p
EOF

# ---- the repository: hashes that apt compares
apt=$dir/out/apt
(cd "$apt/dists/stable" && sed -n '/^SHA256:/,$s/^ \(\S*\) \S* \(.*\)/\1  \2/p' Release | sha256sum --quiet -c) || fail "Release"
(cd "$apt" && awk '/^Filename:/ { f = $2 } /^SHA256:/ { print $2 "  " f }' dists/stable/main/binary-amd64/Packages | sha256sum --quiet -c) || fail "Packages"
if [ -n "${INFER_APT_KEY-}" ]; then # by the key that stands beside it, and by no other text
    gpg --batch --quiet --dearmor <"$apt/infer.asc" >"$dir/key.gpg"
    signed() { gpgv -q --keyring "$dir/key.gpg" "$@" 2>/dev/null; }
    signed -o "$dir/inside" "$apt/dists/stable/InRelease" || fail "InRelease"
    cmp "$dir/inside" "$apt/dists/stable/Release" || fail "InRelease is not Release"
    signed "$apt/dists/stable/Release.gpg" "$apt/dists/stable/Release" || fail "Release.gpg"
    sed 's/^Origin: infer$/Origin: other/' "$apt/dists/stable/InRelease" >"$dir/changed"
    if signed "$dir/changed"; then fail "a changed InRelease is taken"; fi
    gpgconf --kill all
fi
echo "package: all well"
