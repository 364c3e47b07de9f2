#!/bin/sh
# An authority, and a certificate of the SuperLink's that it signed, for a trial or for owners who trust its maker.
# Usage: sh certificates.sh FOLDER NAME..., such as: sh certificates.sh authority fed.example.org
# ca.key stays where it is made, and off line; hosts get ca.crt, the server server.crt and server.key as well.
set -eu
[ $# -ge 2 ] || { echo "usage: sh certificates.sh FOLDER NAME..." >&2; exit 2; }
folder=$1 first=$2
shift
# The server app and the proxy call the SuperLink by these.
names="DNS:localhost,IP:127.0.0.1"
for name in "$@"; do
    case $name in
    *[!0-9.]*) names="$names,DNS:$name" ;;
    *) names="$names,IP:$name" ;;
    esac
done
umask 077
mkdir -p "$folder"
cd "$folder"
curve="-newkey ec -pkeyopt ec_paramgen_curve:secp384r1 -noenc"
# An authority that is here already signs again: that is how a certificate is renewed.
# shellcheck disable=SC2086
[ -f ca.key ] || openssl req -x509 $curve -days 1825 -subj "/CN=authority of $first" \
    -addext "keyUsage=critical,keyCertSign,cRLSign" -keyout ca.key -out ca.crt
cat >server.ext <<EOF
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = $names
EOF
# shellcheck disable=SC2086
openssl req -new $curve -subj "/CN=$first" -keyout server.key -out server.csr
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -extfile server.ext -out server.crt
openssl verify -x509_strict -CAfile ca.crt server.crt
chmod 644 ca.crt server.crt
