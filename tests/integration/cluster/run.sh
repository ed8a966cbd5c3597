#!/bin/bash
# Tests part servers and routers that each have a network of their own, while hosts, packets and
# names fail.
#     tests/integration/cluster/run.sh --build DIR [--long] [TEST...]
# All of it runs in new namespaces for network, processes and mounts, which end with this program:
# nothing on the machine is changed, and nothing remains. That needs CAP_SYS_ADMIN and
# CAP_NET_ADMIN; without them all tests are skipped. Figures are printed, and written to
# DIR/cluster.json.
# Prints "N passed, N failed" at the end; the exit status is 0 if none failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [[ ${1:-} != --build || -z ${2:-} ]]; then
    echo "usage: $0 --build DIR [--long] [TEST...]" >&2
    exit 2
fi
for program in unshare ip nft dnsmasq; do
    if ! PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null; then
        echo "$0: $program is not installed: deploy/install-packages.sh --all installs it" >&2
        exit 1
    fi
done
export PYTHONDONTWRITEBYTECODE=1 PATH=$PATH:/usr/sbin:/sbin
export PYTHONPATH=$here/../../lib:$here/..:$2/python
apart=(unshare --mount --net --pid --fork --kill-child --mount-proc)
if ! "${apart[@]}" ip link add probe0 type bridge 2>/dev/null; then
    echo 'cluster: skipped, it needs CAP_SYS_ADMIN and CAP_NET_ADMIN'
    echo '0 passed, 0 failed'
    exit 0
fi
/usr/bin/python3 -c 'import run, sys; run.generate_messages(sys.argv[1])' "$(realpath "$2")"
# Not exec: this shell is in the caller's process group, and takes the namespaces with it.
"${apart[@]}" /usr/bin/python3 "$here/cluster_test.py" "$@"
