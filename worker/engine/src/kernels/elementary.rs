//! Elementary functions without branches and without calls to the C library, so that the compiler
//! vectorizes loops over them.

/// Returns e^x with a relative error below 2e-7. Arguments are limited to those whose result is a
/// normal number; NaN stays NaN.
///
/// Source: `expf` from the Cephes library (S. Moshier): x = n·ln 2 + r, and a polynomial for e^r.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const LOWEST: f32 = -87.3;
    const HIGHEST: f32 = 88.0;
    // Adding and subtracting 1.5·2^23 rounds to an integer, which is then in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let x = if x < LOWEST { LOWEST } else { x };
    let x = if x > HIGHEST { HIGHEST } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * 0.693_359_4) - n * -2.121_944_4e-4;
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_199_9e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 0.5;
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    ((p * r * r + r) + 1.0) * power
}

/// Returns erf(x) with an absolute error below 4e-7; NaN stays NaN.
///
/// Source: the rational approximation on [−4, 4] in Eigen (`generic_fast_erf_float`), which
/// TensorFlow and PyTorch's compilers use too.
#[inline(always)]
pub(crate) fn erf(x: f32) -> f32 {
    let x = if x < -4.0 { -4.0 } else { x };
    let x = if x > 4.0 { 4.0 } else { x };
    let square = x * x;
    let mut p = -2.726_142_3e-10;
    p = p * square + 2.770_681_4e-8;
    p = p * square - 2.101_024e-6;
    p = p * square - 5.692_506_5e-5;
    p = p * square - 7.349_906e-4;
    p = p * square - 2.954_6e-3;
    p = p * square - 1.609_603_3e-2;
    let mut q = -1.456_607_2e-5;
    q = q * square - 2.133_740_6e-4;
    q = q * square - 1.682_827e-3;
    q = q * square - 7.373_329_2e-3;
    q = q * square - 1.426_473_9e-2;
    x * p / q
}

/// Returns tanh(x) with an absolute error below 3e-7; NaN stays NaN.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    1.0 - 2.0 / (exp(2.0 * x) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns arguments from −20 to 20 and their neighbourhood of 0.
    fn arguments() -> impl Iterator<Item = f32> {
        (-20_000..=20_000_i32).flat_map(|at| [at as f32 * 1e-3, at as f32 * 1e-7])
    }

    /// Returns erf(x) by a series with positive terms, which no rounding error dominates (Abramowitz
    /// and Stegun, 7.1.6).
    fn erf_by_series(x: f64) -> f64 {
        let mut term = x;
        let mut sum = x;
        for n in 1..200 {
            term *= 2.0 * x * x / f64::from(2 * n + 1);
            sum += term;
        }
        sum * (-x * x).exp() * 2.0 / std::f64::consts::PI.sqrt()
    }

    #[test]
    fn exponential_is_close() {
        for x in arguments() {
            let exact = f64::from(x).exp();
            let error = (f64::from(exp(x)) - exact).abs() / exact;
            assert!(error < 2e-7, "{x}: {error:e}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::NAN).is_nan());
        assert!(exp(f32::NEG_INFINITY) < 2e-38 && exp(f32::INFINITY).is_finite());
    }

    #[test]
    fn error_function_is_close() {
        for x in arguments().filter(|x| x.abs() < 5.0) {
            let error = (f64::from(erf(x)) - erf_by_series(f64::from(x))).abs();
            assert!(error < 4e-7, "{x}: {error:e}");
        }
        assert!(erf(f32::NAN).is_nan());
    }

    #[test]
    fn hyperbolic_tangent_is_close() {
        for x in arguments() {
            let error = (f64::from(tanh(x)) - f64::from(x).tanh()).abs();
            assert!(error < 3e-7, "{x}: {error:e}");
        }
        assert!(tanh(f32::NAN).is_nan());
    }
}
