// SPDX-License-Identifier: Apache-2.0

//! Pools of codecs. Creating a codec costs as much as compressing a small body.

use std::io;

use parking_lot::Mutex;

/// The most idle codecs of one kind. More are made on demand, and dropped after use.
const MAX_IDLE: usize = 4;

/// The idle codecs of one kind. The lock is held for a push or a pop only, never while a codec works.
pub(super) struct CodecPool<T>(Mutex<Vec<T>>);

impl<T> CodecPool<T> {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Runs `work` with an idle codec, or with a new one. After an error the codec is dropped, since its
    /// state is unknown.
    pub(super) fn with<R, E: From<io::Error>>(
        &self,
        make: impl FnOnce() -> io::Result<T>,
        work: impl FnOnce(&mut T) -> Result<R, E>,
    ) -> Result<R, E> {
        let idle = self.0.lock().pop();
        let mut codec = match idle {
            Some(codec) => codec,
            None => make()?,
        };
        let result = work(&mut codec)?;
        let mut idle = self.0.lock();
        if idle.len() < MAX_IDLE {
            idle.push(codec);
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_codec_is_reused_after_success_and_few_are_kept() {
        let pool = CodecPool::new();
        let ask = |made: u32, fails: bool| {
            pool.with(
                || Ok(made),
                |codec| {
                    if fails {
                        Err(io::Error::other("no"))
                    } else {
                        Ok(*codec)
                    }
                },
            )
        };
        assert_eq!(ask(1, false).unwrap(), 1);
        assert_eq!(ask(2, false).unwrap(), 1, "the one that waits");
        assert!(ask(3, true).is_err());
        assert_eq!(ask(4, false).unwrap(), 4, "the one that failed is gone");

        fn nest(pool: &CodecPool<u32>, depth: usize) {
            let deeper = |_: &mut u32| -> io::Result<()> {
                if depth > 0 {
                    nest(pool, depth - 1);
                }
                Ok(())
            };
            pool.with(|| Ok(0), deeper).unwrap();
        }
        nest(&pool, 2 * MAX_IDLE);
        assert_eq!(pool.0.lock().len(), MAX_IDLE);
    }
}
