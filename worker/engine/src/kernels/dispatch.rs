//! Selects vector instructions at run time.

/// Defines a function that uses the CPU's widest vector instructions that leave its result
/// unchanged.
///
/// A build for x86-64 uses vectors with four floats. AVX2 has vectors with eight and computes the
/// same bits: fused multiplication and addition, which rounds once instead of twice, is not
/// enabled.
macro_rules! vectorized {
    (
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block
    ) => {
        $(#[$attribute])*
        $visibility fn $name($($argument: $type),*) $(-> $result)? {
            #[inline(always)]
            fn kernel($($argument: $type),*) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn with_avx2($($argument: $type),*) $(-> $result)? {
                    kernel($($argument),*)
                }
                #[expect(unsafe_code, reason = "the CPU may lack the instructions of with_avx2")]
                fn detected($($argument: $type),*) $(-> $result)? {
                    // SAFETY: called after the CPU was found to have AVX2.
                    unsafe { with_avx2($($argument),*) }
                }
                if std::is_x86_feature_detected!("avx2") {
                    return detected($($argument),*);
                }
            }
            kernel($($argument),*)
        }
    };
}

pub(super) use vectorized;
