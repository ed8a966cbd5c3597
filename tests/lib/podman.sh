# Podman for tests that run as root in a container themselves; sourced under `set -euo pipefail`.
# shellcheck shell=bash

# prepare_podman FOLDER: sets `podman` to a program that keeps its images below FOLDER and needs
# little of the system (layers are whole copies, cgroups work without systemd), and `base` to an
# image of Debian: from a registry if one answers, otherwise made by mmdebstrap from packages.
prepare_podman() {
    podman=$1/podman
    cat >"$podman" <<EOF
#!/bin/bash
options=(--runtime runc --storage-driver vfs --root "$1/store" --runroot "$1/run"
    --cgroup-manager cgroupfs --events-backend file)
[[ \$1 != build ]] || set -- build --isolation chroot --network host --layers=false \\
    --ulimit nofile=20000:20000 --ulimit nproc=1000:1000 "\${@:2}"
exec podman "\${options[@]}" "\$@"
EOF
    chmod +x "$podman"
    base=debian:bookworm-slim
    if ! "$podman" image exists "$base" && ! timeout 60 "$podman" pull -q "$base" 2>/dev/null; then
        base=localhost/debian-bookworm
        if ! "$podman" image exists "$base"; then
            echo "no image registry answers: making the base from packages"
            mmdebstrap --quiet --variant=minbase bookworm "$1/base.tar"
            "$podman" import -q "$1/base.tar" "$base"
            rm "$1/base.tar"
        fi
    fi
}
