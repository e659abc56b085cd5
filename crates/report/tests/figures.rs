//! Figures: well formed whatever the data, the same bytes for the same data, and the look of small ones pinned.

use coptidice_report::bins::Bins;
use coptidice_report::svg::*;
use proptest::prelude::*;

/// Parses a figure and checks what no attribute may hold.
fn well_formed(figure: &Figure) -> Result<(), String> {
    let text = figure.standalone();
    let document = roxmltree::Document::parse(&text).map_err(|e| e.to_string())?;
    let root = document.root_element();
    let child = |tag: &str| {
        root.children().find(|n| n.has_tag_name((root.tag_name().namespace().unwrap_or(""), tag)))
    };
    if child("title").is_none() || child("desc").is_none() {
        return Err("no title or desc".to_owned());
    }
    for node in document.descendants() {
        for attribute in node.attributes() {
            let geometric =
                ["x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "rx", "ry", "width", "height", "points"];
            if geometric.contains(&attribute.name()) {
                for number in attribute.value().split([' ', ',']) {
                    let number: f64 = number.parse().map_err(|_| format!("{number:?} in {attribute:?}"))?;
                    let negative_size =
                        number < 0.0 && ["r", "rx", "ry", "width", "height"].contains(&attribute.name());
                    if !number.is_finite() || negative_size {
                        return Err(format!("{attribute:?}"));
                    }
                }
            }
        }
    }
    Ok(())
}

fn axis(log: bool, label: &str) -> Axis {
    if log { Axis::logarithmic(label) } else { Axis::linear(label) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// No number, text or size makes a chart that cannot be read.
    #[test]
    fn any_data_make_a_well_formed_figure(
        points in prop::collection::vec((prop::num::f64::ANY, prop::num::f64::ANY), 0..30),
        text in ".{0,20}",
        value in prop::num::f64::ANY,
        logs in any::<(bool, bool)>(),
        size in (0.0..2000.0f64, 0.0..2000.0f64),
    ) {
        let values: Vec<f64> = points.iter().map(|p| p.1).collect();
        let series = || Series::new(text.as_str(), points.clone());
        let line = LineChart::new(text.as_str(), axis(logs.0, &text), axis(logs.1, &text).including(value).robust())
            .series(series().band(points.clone()))
            .series(series().error_bars(values.clone()).markers())
            .series(series().averaged(value).dashed())
            .series(series().faint())
            .reference(Reference::new(value, text.as_str()))
            .size(size.0, size.1);
        let panel = || GridPanel::new(axis(logs.1, &text)).series(series().markers())
            .reference(Reference::new(value, text.as_str())).shared_y(0);
        let grid = PanelGrid::new(text.as_str(), axis(logs.0, &text).marks(values.clone()))
            .column_group(text.as_str(), 3)
            .column(text.as_str())
            .row(GridRow::new(text.as_str(), vec![panel(), panel()]))
            .row(GridRow::new("", vec![panel()]))
            .panel_size(size.0, size.1);
        let bars = values.iter().fold(BarChart::new(text.as_str(), text.as_str()), |chart, v| {
            chart.bar(Bar::new(text.as_str(), *v).error(value))
        }).reference(Reference::new(value, text.as_str()));
        let bins = if logs.0 { Bins::logarithmic(&values, 4) } else { Bins::linear(&values, 20) };
        let histogram = Histogram::new(text.as_str(), text.as_str(), bins).mark(value, text.as_str());
        let map = PathMap::new(text.as_str(), (value, size.0), (-size.1, value))
            .disc(Disc { kind: DiscKind::Hazard, center: (value, 0.0), radius: value, label: text.clone() })
            .paths(PathGroup::new(text.as_str(), vec![points.clone()]))
            .paths(PathGroup::faint(text.as_str(), vec![points.clone(), vec![]]));
        let gauge = LimitGauge::new(text.as_str(), value, size.0, values.first().copied());
        let charts: [&dyn Chart; 6] = [&line, &grid, &bars, &histogram, &map, &gauge];
        for chart in charts {
            let figure = chart.figure();
            prop_assert_eq!(well_formed(&figure), Ok(()));
            prop_assert_eq!(&figure, &chart.figure());
        }
    }
}

#[test]
fn empty_charts_say_so() {
    let x = || Axis::linear("x");
    for text in [
        LineChart::new("t", x(), x()).figure().inline(),
        Histogram::new("t", "x", Bins::linear(&[], 5)).figure().inline(),
    ] {
        assert!(text.contains("no data"));
    }
    let empty = PanelGrid::new("t", x()).figure();
    assert_eq!(well_formed(&empty), Ok(()));
}

#[test]
fn what_is_missing_is_said() {
    let points = [(1.0, 1.0), (2.0, f64::NAN), (3.0, -1.0), (4.0, 2.0)];
    let figure = LineChart::new("t", Axis::linear("x"), Axis::logarithmic("y"))
        .series(Series::new("s", points))
        .figure();
    assert_eq!(
        figure.notes(),
        ["1 value not a finite number", "1 value without a place on a logarithmic axis"]
    );
    assert!(figure.inline().contains("1 value not a finite number."));
}

/// Text from a user's file cannot become markup.
#[test]
fn text_stays_text() {
    let evil = "</text><script>alert(1)</script>\"'&\u{0}";
    let figure = LineChart::new(evil, Axis::linear(evil), Axis::linear(evil))
        .series(Series::new(evil, [(0.0, 1.0)]))
        .series(Series::new("other", [(0.0, 2.0)]).markers())
        .reference(Reference::new(0.5, evil))
        .figure();
    assert_eq!(well_formed(&figure), Ok(()));
    assert!(!figure.standalone().contains("<script"));
}

/// Long curves are thinned before they are written.
#[test]
fn size_does_not_grow_with_the_curve() {
    let chart = |n: u32| {
        let points = (0..n).map(|i| (f64::from(i), (f64::from(i) * 0.37).sin()));
        LineChart::new("t", Axis::linear("x"), Axis::linear("y")).series(Series::new("s", points)).figure()
    };
    assert!(chart(1_000_000).inline().len() < 20_000);
}

#[test]
fn line_chart_looks_like_this() {
    let figure = LineChart::new("Cost", Axis::linear("step"), Axis::linear("cost").including(0.0))
        .series(Series::new("estimate", [(0.0, 0.3), (100.0, 0.09)]).band([(0.2, 0.4), (0.08, 0.1)]))
        .series(Series::new("bound", [(0.0, 0.35), (100.0, 0.1)]).dashed())
        .reference(Reference::new(0.1, "limit 0.1"))
        .size(200.0, 140.0)
        .figure();
    insta::assert_snapshot!(figure.inline());
}

#[test]
fn histogram_looks_like_this() {
    let bins = Bins::linear(&[1.0, 2.0, 2.0, 5.0], 10);
    insta::assert_snapshot!(
        Histogram::new("h", "x", bins).mark(3.0, "limit").size(200.0, 120.0).figure().inline()
    );
}

#[test]
fn gauge_looks_like_this() {
    insta::assert_snapshot!(LimitGauge::new("cost per step", 0.1, 0.05, Some(0.08)).figure().standalone());
}
