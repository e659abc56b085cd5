//! Arrow arrays read cell by cell.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal128Type, DurationMicrosecondType,
    DurationMillisecondType, DurationNanosecondType, DurationSecondType, Float16Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, LargeStringArray, StringArray, StringViewArray,
};
use arrow_schema::{DataType, TimeUnit};

use super::Cell;

/// The cells of an array whose elements are single values.
pub(crate) enum CellColumn {
    Int(Int64Array),
    Float(Float64Array),
    Bool(BooleanArray),
    Text(StringArray),
    LargeText(LargeStringArray),
    TextView(StringViewArray),
    Null,
}

impl CellColumn {
    /// `None` for arrays of lists, structures and other types without a plain reading.
    pub(crate) fn new(array: &ArrayRef) -> Option<Self> {
        Some(match array.data_type() {
            DataType::Null => CellColumn::Null,
            DataType::Boolean => CellColumn::Bool(array.as_boolean().clone()),
            DataType::Int8 => whole::<Int8Type>(array),
            DataType::Int16 => whole::<Int16Type>(array),
            DataType::Int32 => whole::<Int32Type>(array),
            DataType::Int64 => CellColumn::Int(array.as_primitive().clone()),
            DataType::UInt8 => whole::<UInt8Type>(array),
            DataType::UInt16 => whole::<UInt16Type>(array),
            DataType::UInt32 => whole::<UInt32Type>(array),
            DataType::UInt64 => unsigned(array),
            DataType::Float16 => real::<Float16Type>(array, f64::from),
            DataType::Float32 => real::<Float32Type>(array, f64::from),
            DataType::Float64 => CellColumn::Float(array.as_primitive().clone()),
            DataType::Decimal128(_, scale) => {
                let unit = 10_f64.powi(i32::from(*scale));
                real::<Decimal128Type>(array, |value| value as f64 / unit)
            }
            DataType::Utf8 => CellColumn::Text(array.as_string().clone()),
            DataType::LargeUtf8 => CellColumn::LargeText(array.as_string().clone()),
            DataType::Utf8View => CellColumn::TextView(array.as_string_view().clone()),
            DataType::Date32 => whole::<Date32Type>(array),
            DataType::Date64 => whole::<Date64Type>(array),
            DataType::Timestamp(TimeUnit::Second, _) => whole::<TimestampSecondType>(array),
            DataType::Timestamp(TimeUnit::Millisecond, _) => whole::<TimestampMillisecondType>(array),
            DataType::Timestamp(TimeUnit::Microsecond, _) => whole::<TimestampMicrosecondType>(array),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => whole::<TimestampNanosecondType>(array),
            DataType::Duration(TimeUnit::Second) => whole::<DurationSecondType>(array),
            DataType::Duration(TimeUnit::Millisecond) => whole::<DurationMillisecondType>(array),
            DataType::Duration(TimeUnit::Microsecond) => whole::<DurationMicrosecondType>(array),
            DataType::Duration(TimeUnit::Nanosecond) => whole::<DurationNanosecondType>(array),
            DataType::Dictionary(..) => {
                let dictionary = array.as_any_dictionary();
                let values = arrow_select::take::take(dictionary.values(), dictionary.keys(), None).ok()?;
                return CellColumn::new(&values);
            }
            _ => return None,
        })
    }

    pub(crate) fn cell(&self, row: usize) -> Cell<'_> {
        match self {
            CellColumn::Int(values) if values.is_valid(row) => Cell::Int(values.value(row)),
            CellColumn::Float(values) if values.is_valid(row) => Cell::Float(values.value(row)),
            CellColumn::Bool(values) if values.is_valid(row) => Cell::Bool(values.value(row)),
            CellColumn::Text(values) if values.is_valid(row) => Cell::Text(values.value(row)),
            CellColumn::LargeText(values) if values.is_valid(row) => Cell::Text(values.value(row)),
            CellColumn::TextView(values) if values.is_valid(row) => Cell::Text(values.value(row)),
            _ => Cell::Null,
        }
    }
}

fn whole<T: ArrowPrimitiveType>(array: &ArrayRef) -> CellColumn
where
    i64: From<T::Native>,
{
    CellColumn::Int(array.as_primitive::<T>().unary::<_, Int64Type>(i64::from))
}

/// Numbers beyond the range of i64 are no ids; they stand as the largest.
fn unsigned(array: &ArrayRef) -> CellColumn {
    let values = array.as_primitive::<UInt64Type>();
    CellColumn::Int(values.unary::<_, Int64Type>(|value| i64::try_from(value).unwrap_or(i64::MAX)))
}

fn real<T: ArrowPrimitiveType>(array: &ArrayRef, value: impl Fn(T::Native) -> f64) -> CellColumn {
    CellColumn::Float(array.as_primitive::<T>().unary::<_, Float64Type>(value))
}
