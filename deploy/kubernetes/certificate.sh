#!/bin/sh
# Makes the certificate of the webhook: certificate.sh FOLDER NAME…
# FOLDER gets tls.crt and tls.key. NAME is what the API server calls the webhook: the Service's name, or an address.
# The certificate vouches for itself, so it is also the caBundle of the webhook's configuration.
set -eu
folder=${1:?a folder for tls.crt and tls.key}
: "${2:?a name, for example scheduler-bridge-webhook.forebay.svc}"
shift
names=
for name in "$@"; do
  case $name in
    *[!0-9.]*) names=${names:+$names,}DNS:$name ;;
    *) names=${names:+$names,}IP:$name ;;
  esac
done
umask 077
mkdir -p "$folder"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days "${DAYS:-3650}" \
  -subj "/CN=forebay webhook" -addext "subjectAltName=$names" -addext "extendedKeyUsage=serverAuth" \
  -keyout "$folder/tls.key.new" -out "$folder/tls.crt.new" 2>/dev/null
mv "$folder/tls.key.new" "$folder/tls.key"
mv "$folder/tls.crt.new" "$folder/tls.crt"
