//! Writes a graph node by node. Every node has one output, named after the node.

use super::proto::{
    AttributeProto, AttributeType, DataType, Dimension, DimensionProto, GraphProto, NodeProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};

/// The name of the batch dimension.
pub(super) const BATCH: &str = "N";

/// A constant parameter of an operator.
#[derive(Clone, Copy)]
pub(super) enum Attribute {
    Float(&'static str, f32),
    Int(&'static str, i64),
}

/// A graph in the making. Values are known by name.
#[derive(Default)]
pub(super) struct Graph {
    nodes: Vec<NodeProto>,
    initializers: Vec<TensorProto>,
    inputs: Vec<ValueInfoProto>,
    outputs: Vec<ValueInfoProto>,
}

impl Graph {
    /// A graph with an input `[N, width]` of 32-bit floats.
    pub(super) fn with_input(name: &str, width: usize, doc: String) -> Self {
        Self { inputs: vec![value(name, DataType::Float, &[width], doc)], ..Self::default() }
    }

    /// Declares an already written value as an output `[N, dims...]`.
    pub(super) fn output(&mut self, name: &str, data_type: DataType, dims: &[usize], doc: String) {
        self.outputs.push(value(name, data_type, dims, doc));
    }

    /// A constant of 32-bit floats; returns its name.
    pub(super) fn floats(&mut self, name: &str, dims: &[usize], values: &[f32]) -> String {
        let raw = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.constant(name, DataType::Float, dims.iter().map(|&d| d as i64).collect(), raw)
    }

    /// A constant vector of integers; returns its name.
    pub(super) fn integers(&mut self, name: &str, values: &[i64]) -> String {
        let raw = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.constant(name, DataType::Int64, vec![values.len() as i64], raw)
    }

    /// A constant integer without dimensions; returns its name.
    pub(super) fn integer(&mut self, name: &str, value: i64) -> String {
        self.constant(name, DataType::Int64, Vec::new(), value.to_le_bytes().to_vec())
    }

    /// One operator; its output is called `name`, which is returned.
    pub(super) fn node(
        &mut self,
        operator: &str,
        name: &str,
        inputs: &[&str],
        attributes: &[Attribute],
    ) -> String {
        self.nodes.push(NodeProto {
            input: inputs.iter().map(|&input| input.to_owned()).collect(),
            output: vec![name.to_owned()],
            name: Some(name.to_owned()),
            op_type: Some(operator.to_owned()),
            attribute: attributes.iter().map(|&attribute| attribute_proto(attribute)).collect(),
        });
        name.to_owned()
    }

    /// The finished graph.
    pub(super) fn finish(self, name: &str) -> GraphProto {
        GraphProto {
            node: self.nodes,
            name: Some(name.to_owned()),
            initializer: self.initializers,
            input: self.inputs,
            output: self.outputs,
        }
    }

    fn constant(&mut self, name: &str, data_type: DataType, dims: Vec<i64>, raw: Vec<u8>) -> String {
        self.initializers.push(TensorProto {
            dims,
            data_type: Some(data_type as i32),
            name: Some(name.to_owned()),
            raw_data: Some(raw),
        });
        name.to_owned()
    }
}

fn attribute_proto(attribute: Attribute) -> AttributeProto {
    match attribute {
        Attribute::Float(name, value) => AttributeProto {
            name: Some(name.to_owned()),
            f: Some(value),
            i: None,
            r#type: Some(AttributeType::Float as i32),
        },
        Attribute::Int(name, value) => AttributeProto {
            name: Some(name.to_owned()),
            f: None,
            i: Some(value),
            r#type: Some(AttributeType::Int as i32),
        },
    }
}

fn value(name: &str, data_type: DataType, dims: &[usize], doc: String) -> ValueInfoProto {
    let batch = Dimension::Param(BATCH.to_owned());
    let dims = dims.iter().map(|&d| Dimension::Value(d as i64));
    let dim = std::iter::once(batch).chain(dims).map(|d| DimensionProto { value: Some(d) }).collect();
    let tensor = TensorTypeProto { elem_type: Some(data_type as i32), shape: Some(TensorShapeProto { dim }) };
    ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: Some(TypeProto { tensor_type: Some(tensor) }),
        doc_string: Some(doc),
    }
}
