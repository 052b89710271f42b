// A transposed convolution of one group: which inputs reach an output follows from where they go.
struct Block {
    in_channels: u32, in_height: u32, in_width: u32,
    channels: u32, height: u32, width: u32,
    kernel_height: u32, kernel_width: u32,
    stride_y: i32, stride_x: i32, pad_y: i32, pad_x: i32,
    row: u32, words: u32,
    in_scale: f32, in_zp: i32, inv_out_scale: f32, out_zp: i32, biased: u32,
}

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> weight: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<u32>;
@group(0) @binding(5) var<uniform> block: Block;

fn signed_byte(word: u32, at: u32) -> i32 {
    return extractBits(bitcast<i32>(word), 8u * (at % 4u), 8u);
}

fn products(image: u32, channel: u32, row: u32, column: u32) -> i32 {
    var sum = 0;
    for (var ky = 0u; ky < block.kernel_height; ky++) {
        let down = i32(row) + block.pad_y - i32(ky);
        let iy = down / block.stride_y;
        if (down < 0 || down % block.stride_y != 0 || iy >= i32(block.in_height)) {
            continue;
        }
        for (var kx = 0u; kx < block.kernel_width; kx++) {
            let across = i32(column) + block.pad_x - i32(kx);
            let ix = across / block.stride_x;
            if (across < 0 || across % block.stride_x != 0 || ix >= i32(block.in_width)) {
                continue;
            }
            for (var c = 0u; c < block.in_channels; c++) {
                let tap = channel * block.row + (ky * block.kernel_width + kx) * block.in_channels + c;
                let plane = image * block.in_channels + c;
                let place = (plane * block.in_height + u32(iy)) * block.in_width + u32(ix);
                let value = signed_byte(x[place / 4u], place) - block.in_zp;
                sum += value * signed_byte(weight[tap / 4u], tap);
            }
        }
    }
    return sum;
}

@compute @workgroup_size(32)
fn spread(@builtin(global_invocation_id) id: vec3<u32>) {
    let word = id.x;
    if (word >= block.words) {
        return;
    }
    var packed = 0u;
    for (var lane = 0u; lane < 4u; lane++) {
        let at = 4u * word + lane;
        let column = at % block.width;
        let row = (at / block.width) % block.height;
        let channel = (at / (block.width * block.height)) % block.channels;
        let image = at / (block.width * block.height * block.channels);
        var real = (f32(products(image, channel, row, column)) * block.in_scale) * scales[channel];
        if (block.biased != 0u) {
            real += bias[channel];
        }
        let q = clamp(i32(round(real * block.inv_out_scale)) + block.out_zp, -128, 127);
        packed |= (u32(q) & 0xffu) << (8u * lane);
    }
    y[word] = packed;
}
