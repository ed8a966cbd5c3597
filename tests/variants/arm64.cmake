# Toolchain for the kernels and their tests on arm64: Debian's cross compiler, and an emulator.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)

# Finds only the arm64 libraries that deploy/install-packages.sh installs.
set(ENV{PKG_CONFIG_SYSROOT_DIR} /usr/local/aarch64-linux-gnu)
set(ENV{PKG_CONFIG_LIBDIR} /usr/local/aarch64-linux-gnu/usr/lib/aarch64-linux-gnu/pkgconfig)
