//! What the test of memory and the example that measures it share.

/// A figure of this process from the kernel, such as `VmHWM:`, in bytes, where the system gives it.
pub(crate) fn memory(key: &str) -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(key))?;
    line.split_whitespace().nth(1)?.parse::<usize>().ok().map(|kilobytes| 1024 * kilobytes)
}
