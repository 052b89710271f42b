// max(x, 0), from one quantization to another.
struct Block { in_scale: f32, in_zp: i32, inv_out_scale: f32, out_zp: i32, words: u32 }

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(2) var<uniform> block: Block;

@compute @workgroup_size(32)
fn relu(@builtin(global_invocation_id) id: vec3<u32>) {
    let word = id.x;
    if (word >= block.words) {
        return;
    }
    let four = unpack4xI8(x[word]) - vec4<i32>(block.in_zp);
    let real = max(block.in_scale * vec4<f32>(four), vec4<f32>(0.0));
    let q = vec4<i32>(round(real * block.inv_out_scale)) + vec4<i32>(block.out_zp);
    y[word] = pack4xI8(clamp(q, vec4<i32>(-128), vec4<i32>(127)));
}
