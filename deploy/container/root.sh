#!/bin/sh
# SPDX-License-Identifier: Apache-2.0

# Makes a root directory out of the Debian packages that tidegate needs at run time: root.sh DIRECTORY
#
# It has no shell and no package manager. `var/lib/dpkg/status.d` names the packages for scanners of vulnerabilities.
set -eu

root=$1
# The C library, the libraries of plugins in C++, and the authorities that TLS trusts.
packages="base-files ca-certificates libc6 libgcc-s1 libstdc++6"

# _apt may not write to directories of root.
work=$(mktemp -d)
chmod 755 "$work"
mkdir -p "$root" "$work/packages"
cd "$work/packages"
apt-get update
# $packages is a list of words.
# shellcheck disable=SC2086
apt-get -o APT::Sandbox::User=root download $packages
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

# Without these, the image is a third smaller.
rm -rf "$root/usr/share/man" "$root/usr/share/locale" "$root/usr/share/i18n" "$root/usr/share/lintian" \
    "$root/usr/sbin" "$root/usr/lib/x86_64-linux-gnu/gconv" "$root/usr/lib/aarch64-linux-gnu/gconv" \
    "$root/var/cache" "$root/var/mail" "$root/var/spool"
rm -rf "$work"
