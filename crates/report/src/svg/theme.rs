//! Colours and type, for light and dark surroundings.
//!
//! Elements carry the light colours as attributes and a class; the style sheet only overrides them where the reader
//! prefers dark. So a figure reads right also in programs that know no style sheets, and prints light.

use std::fmt::Write as _;

/// Type that every system has at hand; nothing is loaded.
pub(crate) const FONT: &str =
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";

/// Size of labels, in units of the figure.
pub(crate) const TEXT: f64 = 12.0;
/// Size of panel titles.
pub(crate) const TITLE: f64 = 13.0;

/// One colour in both surroundings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tone {
    pub(crate) light: &'static str,
    pub(crate) dark: &'static str,
}

/// Series colours, in order of use. Each stands out from its background by 3:1 or more, and any two of the first
/// six can be told apart in normal sight and with the three kinds of colour blindness; the tests compute both.
/// The last, grey, is for what stands behind: logged data, references.
pub(crate) const SERIES: [Tone; 7] = [
    Tone { light: "#0555b3", dark: "#469df5" },
    Tone { light: "#b8401e", dark: "#f8845a" },
    Tone { light: "#189f72", dark: "#42e0b5" },
    Tone { light: "#b74391", dark: "#cd74b7" },
    Tone { light: "#c48605", dark: "#ecc442" },
    Tone { light: "#4d1d6a", dark: "#e3cdfa" },
    Tone { light: "#7a8391", dark: "#8a94a3" },
];

/// Index of the palette's grey, for what stands behind: logged data, references.
pub const NEUTRAL: usize = SERIES.len() - 1;

pub(crate) const BACKGROUND: Tone = Tone { light: "#ffffff", dark: "#161a20" };
pub(crate) const INK: Tone = Tone { light: "#1b2028", dark: "#e8ebf0" };
pub(crate) const MUTED: Tone = Tone { light: "#59626f", dark: "#a3adba" };
pub(crate) const AXIS: Tone = Tone { light: "#9aa3af", dark: "#6b7583" };
pub(crate) const GRID: Tone = Tone { light: "#e4e8ed", dark: "#2b323b" };

/// The rules that every figure on a page shares; a figure on its own carries them inside.
pub(crate) fn style_sheet() -> String {
    let mut css = String::from("@media screen and (prefers-color-scheme:dark){");
    let rules = [
        ("ink", "fill", INK),
        ("muted", "fill", MUTED),
        ("axis", "stroke", AXIS),
        ("grid", "stroke", GRID),
        ("rule", "stroke", INK),
        ("halo", "stroke", BACKGROUND),
        ("ground", "fill", BACKGROUND),
    ];
    for (class, property, tone) in rules {
        let _ = write!(css, ".cd-{class}{{{property}:{}}}", tone.dark);
    }
    for (i, tone) in SERIES.iter().enumerate() {
        let _ = write!(css, ".cd-l{i}{{stroke:{0}}}.cd-f{i}{{fill:{0}}}", tone.dark);
    }
    css.push('}');
    css
}

/// The colour of series `index`; the palette repeats without its grey.
pub(crate) fn series(index: usize) -> (usize, Tone) {
    let slot = if index == NEUTRAL { NEUTRAL } else { index % NEUTRAL };
    (slot, SERIES[slot])
}

#[cfg(test)]
mod tests {
    use super::*;

    type Rgb = [f64; 3];

    fn linear_rgb(hex: &str) -> Rgb {
        [1, 3, 5].map(|i| {
            let v = f64::from(u8::from_str_radix(&hex[i..i + 2], 16).unwrap()) / 255.0;
            if v <= 0.04045 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) }
        })
    }

    fn apply(m: [[f64; 3]; 3], c: Rgb) -> Rgb {
        m.map(|row| (row[0] * c[0] + row[1] * c[1] + row[2] * c[2]).clamp(0.0, 1.0))
    }

    /// WCAG 2 contrast ratio.
    fn contrast(a: &str, b: &str) -> f64 {
        let luminance = |hex| {
            let [r, g, b] = linear_rgb(hex);
            0.2126 * r + 0.7152 * g + 0.0722 * b
        };
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    /// CIE L*a*b* under D65.
    fn lab(c: Rgb) -> Rgb {
        let xyz = apply_unclamped(
            [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]],
            c,
        );
        let f = |t: f64| if t > 0.008_856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 };
        let [x, y, z] = [f(xyz[0] / 0.9505), f(xyz[1]), f(xyz[2] / 1.089)];
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    fn apply_unclamped(m: [[f64; 3]; 3], c: Rgb) -> Rgb {
        m.map(|row| row[0] * c[0] + row[1] * c[1] + row[2] * c[2])
    }

    /// Full dichromacy after Machado, Oliveira and Fernandes (2009), in linear RGB.
    const SIGHT: [(&str, [[f64; 3]; 3]); 4] = [
        ("normal", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
        (
            "protanopia",
            [
                [0.152_286, 1.052_583, -0.204_868],
                [0.114_503, 0.786_281, 0.099_216],
                [-0.003_882, -0.048_116, 1.051_998],
            ],
        ),
        (
            "deuteranopia",
            [
                [0.367_322, 0.860_646, -0.227_968],
                [0.280_085, 0.672_501, 0.047_413],
                [-0.011_820, 0.042_940, 0.968_881],
            ],
        ),
        (
            "tritanopia",
            [
                [1.255_528, -0.076_749, -0.178_779],
                [-0.078_411, 0.930_809, 0.147_602],
                [0.004_733, 0.691_367, 0.303_900],
            ],
        ),
    ];

    #[test]
    fn everything_stands_out_from_its_background() {
        for tone in SERIES {
            assert!(contrast(tone.light, BACKGROUND.light) >= 3.0, "{tone:?}");
            assert!(contrast(tone.dark, BACKGROUND.dark) >= 3.0, "{tone:?}");
        }
        for text in [INK, MUTED] {
            assert!(contrast(text.light, BACKGROUND.light) >= 4.5, "{text:?}");
            assert!(contrast(text.dark, BACKGROUND.dark) >= 4.5, "{text:?}");
        }
    }

    /// A CIE76 difference of 2.3 is just noticeable; lines of two units' width need several times that.
    #[test]
    fn series_can_be_told_apart_by_everyone() {
        for (sight, matrix) in SIGHT {
            for i in 0..NEUTRAL {
                for j in 0..i {
                    for pick in [|t: Tone| t.light, |t: Tone| t.dark] {
                        let see = |t: Tone| lab(apply(matrix, linear_rgb(pick(t))));
                        let (a, b) = (see(SERIES[i]), see(SERIES[j]));
                        let distance = (0..3).map(|k| (a[k] - b[k]).powi(2)).sum::<f64>().sqrt();
                        assert!(distance > 20.0, "{sight}: {i} {j} {} {distance}", pick(SERIES[i]));
                    }
                }
            }
        }
    }

    #[test]
    fn the_palette_repeats_without_its_grey() {
        assert_eq!(series(NEUTRAL).0, NEUTRAL);
        assert_eq!(series(NEUTRAL + 1).0, 1);
    }
}
