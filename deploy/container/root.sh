#!/bin/sh
# SPDX-License-Identifier: Apache-2.0

# Makes a root directory out of the Debian packages that tidegate needs at run time: root.sh DIRECTORY
#
# It has no shell and no package manager. `var/lib/dpkg/status.d` names the packages for scanners of vulnerabilities.
set -eu

mkdir -p "$1"
root=$(cd "$1" && pwd)
# The C library, the libraries of plugins in C++, and the authorities that TLS trusts.
packages="base-files ca-certificates libc6 libgcc-s1 libstdc++6"

# _apt may not write to directories of root.
work=$(mktemp -d)
chmod 755 "$work"
cd "$work"
download() {
    # $packages is a list of words.
    # shellcheck disable=SC2086
    apt-get -o APT::Sandbox::User=root download $packages
}
# The lists of packages may be missing, as in an image, or old.
download || { apt-get update && download; }
mkdir -p "$root/var/lib/dpkg/status.d"
for package in *.deb; do
    dpkg-deb --extract "$package" "$root"
    dpkg-deb --field "$package" > "$root/var/lib/dpkg/status.d/${package%%_*}"
done

# The scripts of ca-certificates would join the authorities.
mkdir -p "$root/etc/ssl/certs"
find "$root/usr/share/ca-certificates" -name '*.crt' -exec cat {} + > "$root/etc/ssl/certs/ca-certificates.crt"

echo 'tidegate:x:10001:10001:tidegate:/:/sbin/nologin' >> "$root/etc/passwd"
echo 'tidegate:x:10001:' >> "$root/etc/group"
echo 'hosts: files dns' > "$root/etc/nsswitch.conf"

# Without these, the image is a third smaller. The joined authorities and the licences of packages stay.
rm -rf "$root/usr/share/ca-certificates" "$root/usr/share/gcc" "$root/usr/share/gdb" "$root/usr/share/man" \
    "$root/usr/share/locale" "$root/usr/share/i18n" "$root/usr/share/lintian" \
    "$root/usr/sbin" "$root/usr/lib/x86_64-linux-gnu/gconv" "$root/usr/lib/aarch64-linux-gnu/gconv" \
    "$root/var/cache" "$root/var/local" "$root/var/mail" "$root/var/spool"
# Tools for developers of programs, name services that `hosts` does not name, and the vector functions of libm.
for library in libBrokenLocale libc_malloc_debug libmemusage libmvec libnsl libnss_compat libnss_hesiod libpcprofile \
    libthread_db; do
    rm -f "$root"/lib/*-linux-gnu/"$library".so*
done
# Texts of licences that no package here names.
for licence in Apache-2.0 Artistic BSD CC0-1.0 GFDL GFDL-1.2 GFDL-1.3 GPL-1 LGPL LGPL-2 LGPL-3 MPL-1.1 MPL-2.0; do
    rm -f "$root/usr/share/common-licenses/$licence"
done
find "$root/usr/share/doc" -type f ! -name copyright -delete
find "$root/usr/share/doc" -type d -empty -delete
rm -rf "$work"
