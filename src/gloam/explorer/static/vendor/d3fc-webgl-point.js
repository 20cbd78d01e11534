// node_modules/@d3fc/d3fc-webgl/src/scale/base.js
var base_default = () => {
  let domain = [0, 1], range = [-1, 1], base = () => {
  };
  return base.domain = (...args) => args.length ? (domain = args[0], base) : domain, base.range = (...args) => args.length ? (range = args[0], base) : range, base;
};

// node_modules/@d3fc/d3fc-webgl/src/buffer/bufferBuilder.js
var bufferBuilder_default = () => {
  let attributes = {}, uniforms = {}, elementIndices = null, bufferBuilder = (programBuilder, program) => {
    let gl = programBuilder.context();
    Object.keys(attributes).forEach((name) => {
      let attribute = attributes[name];
      if (typeof attribute != "function")
        throw new Error(
          `Expected an attribute for ${name}, found ${attribute}`
        );
      let location = gl.getAttribLocation(program, name);
      attribute.location(location)(programBuilder);
    }), Object.keys(uniforms).forEach((name) => {
      let uniform = uniforms[name];
      if (typeof uniform != "function")
        throw new Error(
          `Expected a uniform for ${name}, found ${uniform}`
        );
      let location = gl.getUniformLocation(program, name);
      uniform.location(location)(programBuilder);
    }), elementIndices !== null && elementIndices(programBuilder);
  };
  return bufferBuilder.flush = () => {
    Object.values(attributes).forEach((attribute) => attribute.clear()), Object.values(uniforms).forEach((uniform) => uniform.clear()), elementIndices !== null && elementIndices.clear();
  }, bufferBuilder.attribute = (...args) => args.length === 1 ? attributes[args[0]] : (attributes[args[0]] = args[1], bufferBuilder), bufferBuilder.uniform = (...args) => args.length === 1 ? uniforms[args[0]] : (uniforms[args[0]] = args[1], bufferBuilder), bufferBuilder.elementIndices = (...args) => args.length ? (elementIndices = args[0], bufferBuilder) : elementIndices, bufferBuilder;
};

// node_modules/@d3fc/d3fc-webgl/src/buffer/uniform.js
var uniform_default = (initialData) => {
  let location = -1, data = initialData, dirty = !0, build = (programBuilder) => {
    if (!dirty)
      return;
    let gl = programBuilder.context();
    if (Array.isArray(data))
      switch (data.length) {
        case 1:
          gl.uniform1fv(location, data);
          break;
        case 2:
          gl.uniform2fv(location, data);
          break;
        case 3:
          gl.uniform3fv(location, data);
          break;
        case 4:
          gl.uniform4fv(location, data);
          break;
        default:
          throw new Error(
            `Uniform supports up to 4 elements. ${data.length} provided.`
          );
      }
    else
      gl.uniform1f(location, data);
    dirty = !1;
  };
  return build.clear = () => {
    dirty = !0;
  }, build.location = (...args) => args.length ? (location !== args[0] && (location = args[0], dirty = !0), build) : location, build.data = (...args) => args.length ? (data = args[0], dirty = !0, build) : data, build;
};

// node_modules/@d3fc/d3fc-webgl/src/program/drawModes.js
var drawModes_default = {
  POINTS: 0,
  LINES: 1,
  LINE_LOOP: 2,
  LINE_STRIP: 3,
  TRIANGLES: 4,
  TRIANGLE_STRIP: 5,
  TRIANGLE_FAN: 6
};

// node_modules/@d3fc/d3fc-webgl/src/program/programBuilder.js
var programBuilder_default = () => {
  let context = null, program = null, vertexShader = null, fragmentShader = null, programVertexShader = null, programFragmentShader = null, mode = drawModes_default.TRIANGLES, subInstanceCount = 0, buffers = bufferBuilder_default(), debug = !1, extInstancedArrays = null, dirty = !0, pixelRatio = 1, build = (count) => {
    if (context == null)
      return;
    let vertexShaderSource = vertexShader(), fragmentShaderSource = fragmentShader();
    if (newProgram(program, vertexShaderSource, fragmentShaderSource) && (program = createProgram(vertexShaderSource, fragmentShaderSource), programVertexShader = vertexShaderSource, programFragmentShader = fragmentShaderSource, dirty = !1), context.useProgram(program), buffers.uniform(
      "uScreen",
      uniform_default([
        context.canvas.width / pixelRatio,
        context.canvas.height / pixelRatio
      ])
    ), buffers(build, program), subInstanceCount === 0)
      buffers.elementIndices() == null ? context.drawArrays(mode, 0, count) : context.drawElements(mode, count, context.UNSIGNED_SHORT, 0);
    else if (buffers.elementIndices() == null)
      extInstancedArrays.drawArraysInstancedANGLE(
        mode,
        0,
        subInstanceCount,
        count
      );
    else {
      let elementIndicesLength = buffers.elementIndices().data().length;
      if (subInstanceCount !== elementIndicesLength)
        throw new Error(
          `Expected elementIndices length ${elementIndicesLength} to match subInstanceCount ${subInstanceCount}.`
        );
      extInstancedArrays.drawElementsInstancedANGLE(
        mode,
        subInstanceCount,
        context.UNSIGNED_SHORT,
        0,
        count
      );
    }
  };
  return build.extInstancedArrays = () => extInstancedArrays, build.context = (...args) => args.length ? ((args[0] == null || args[0] !== context) && (buffers.flush(), dirty = !0), args[0] != null && args[0] !== context && (extInstancedArrays = args[0].getExtension("ANGLE_instanced_arrays")), context = args[0], build) : context, build.buffers = (...args) => args.length ? (buffers = args[0], build) : buffers, build.vertexShader = (...args) => args.length ? (vertexShader = args[0], build) : vertexShader, build.fragmentShader = (...args) => args.length ? (fragmentShader = args[0], build) : fragmentShader, build.mode = (...args) => args.length ? (mode = args[0], build) : mode, build.subInstanceCount = (...args) => args.length ? (subInstanceCount = args[0], build) : subInstanceCount, build.debug = (...args) => args.length ? (debug = args[0], build) : debug, build.pixelRatio = (...args) => args.length ? (pixelRatio = args[0], build) : pixelRatio, build;
  function newProgram(program2, vertexShader2, fragmentShader2) {
    return !program2 || dirty ? !0 : vertexShader2 !== programVertexShader || fragmentShader2 !== programFragmentShader;
  }
  function createProgram(vertexShaderSource, fragmentShaderSource) {
    let vertexShader2 = loadShader(
      vertexShaderSource,
      context.VERTEX_SHADER
    ), fragmentShader2 = loadShader(
      fragmentShaderSource,
      context.FRAGMENT_SHADER
    ), program2 = context.createProgram();
    if (context.attachShader(program2, vertexShader2), context.attachShader(program2, fragmentShader2), context.linkProgram(program2), debug && !context.getProgramParameter(program2, context.LINK_STATUS)) {
      let message = context.getProgramInfoLog(program2);
      throw context.deleteProgram(program2), new Error(`Failed to link program : ${message}
            Vertex Shader : ${vertexShaderSource}
            Fragment Shader : ${fragmentShaderSource}`);
    }
    return program2;
  }
  function loadShader(source, type) {
    let shader = context.createShader(type);
    if (context.shaderSource(shader, source), context.compileShader(shader), debug && !context.getShaderParameter(shader, context.COMPILE_STATUS)) {
      let message = context.getShaderInfoLog(shader);
      throw context.deleteShader(shader), new Error(`Failed to compile shader : ${message}
            Shader : ${source}`);
    }
    return shader;
  }
};

// node_modules/@d3fc/d3fc-webgl/src/shaders/shaderBuilder.js
var shaderBuilder_default = (base) => {
  let shaderHeaders = [], shaderBodies = [], build = () => base(shaderHeaders.join(`
`), shaderBodies.join(`
`));
  function append(array, element) {
    array.push(element);
  }
  function insert(array, element, before) {
    let beforeIndex = array.indexOf(before);
    array.splice(beforeIndex >= 0 ? beforeIndex : array.length, 0, element);
  }
  function appendIfNotExists(array, element) {
    array.indexOf(element) === -1 && array.push(element);
  }
  return build.appendHeader = (header) => (append(shaderHeaders, header), build), build.insertHeader = (header, before) => (insert(shaderHeaders, header, before), build), build.appendHeaderIfNotExists = (header) => (appendIfNotExists(shaderHeaders, header), build), build.appendBody = (body) => (append(shaderBodies, body), build), build.insertBody = (body, before) => (insert(shaderBodies, body, before), build), build.appendBodyIfNotExists = (body) => (appendIfNotExists(shaderBodies, body), build), build;
}, vertexShaderBase = (header, body) => `
precision mediump float;
float inf = 1.0 / 0.0;
${header}
void main() {
    ${body}
}`, fragmentShaderBase = (header, body) => `
precision mediump float;
${header}
void main() {
    gl_FragColor = vec4(0.0, 0.0, 0.0, 1.0);
    ${body}
}`;

// node_modules/@d3fc/d3fc-webgl/src/shaders/vertexShaderSnippets.js
var fillColor = {
  header: `attribute vec4 aFillColor;
             varying vec4 vFillColor;`,
  body: "vFillColor = aFillColor;"
};
var circle = {
  header: `
        attribute float aCrossValue;
        attribute float aMainValue;
        attribute float aSize;
        attribute float aDefined;

        uniform float uStrokeWidth;

        varying float vSize;
        varying float vDefined;`,
  body: `
        vDefined = aDefined;
        vSize = 2.0 * sqrt(aSize / 3.14159);
        gl_PointSize = vSize + uStrokeWidth + 1.0;
        gl_Position = vec4(aCrossValue, aMainValue, 0, 1);`
};
var square = {
  header: `
        attribute float aCrossValue;
        attribute float aMainValue;
        attribute float aSize;
        attribute float aDefined;

        uniform float uStrokeWidth;

        varying float vSize;
        varying float vDefined;`,
  body: `
        vDefined = aDefined;
        vSize = sqrt(aSize);
        gl_PointSize = vSize + uStrokeWidth + 1.0;
        gl_Position = vec4(aCrossValue, aMainValue, 0, 1);`
};

// node_modules/@d3fc/d3fc-webgl/src/shaders/fragmentShaderSnippets.js
var circle2 = {
  header: `
        varying float vSize;
        varying float vDefined;`,
  body: `
        float canFill = 1.0;
        float distance = length(2.0 * gl_PointCoord - 1.0);
        float canStroke = smoothstep(vSize - 2.0, vSize, distance * vSize);
        if (distance > 1.0 || vDefined < 0.5) {
            discard;
            return;
        }`
};
var square2 = {
  header: `
        varying float vSize;
        varying float vDefined;`,
  body: `
        float canFill = 1.0;
        if (vDefined < 0.5) {
            discard;
        }
        vec2 pointCoordTransform = 2.0 * gl_PointCoord - 1.0;
        float distance = max(abs(pointCoordTransform.x), abs(pointCoordTransform.y));
        float canStroke = smoothstep(vSize - 2.0, vSize, distance * vSize);`
};
var fillColor2 = {
  header: "varying vec4 vFillColor;",
  body: "gl_FragColor = (canFill * vFillColor) + ((1.0 - canFill) * gl_FragColor);"
};

// node_modules/@d3fc/d3fc-webgl/src/shaders/point/circle/baseShader.js
var baseShader_default = () => {
  let vertexShader = shaderBuilder_default(vertexShaderBase), fragmentShader = shaderBuilder_default(fragmentShaderBase);
  return vertexShader.appendHeader(circle.header).appendBody(circle.body), fragmentShader.appendHeader(circle2.header).appendBody(circle2.body), {
    vertex: () => vertexShader,
    fragment: () => fragmentShader
  };
};

// node_modules/@d3fc/d3fc-rebind/src/createReboundMethod.js
var createReboundMethod_default = (target, source, name) => {
  let method = source[name];
  if (typeof method != "function")
    throw new Error(`Attempt to rebind ${name} which isn't a function on the source object`);
  return (...args) => {
    var value = method.apply(source, args);
    return value === source ? target : value;
  };
};

// node_modules/@d3fc/d3fc-rebind/src/rebind.js
var rebind_default = (target, source, ...names) => {
  for (let name of names)
    target[name] = createReboundMethod_default(target, source, name);
  return target;
};

// node_modules/@d3fc/d3fc-rebind/src/rebindAll.js
var createTransform = (transforms) => (name) => transforms.reduce(
  (name2, fn) => name2 && fn(name2),
  name
), rebindAll_default = (target, source, ...transforms) => {
  let transform = createTransform(transforms);
  for (let name of Object.keys(source)) {
    let result = transform(name);
    result && (target[result] = createReboundMethod_default(target, source, name));
  }
  return target;
};

// node_modules/@d3fc/d3fc-webgl/src/rebindCurry.js
var rebindCurry_default = (target, targetName, source, sourceName, ...curriedArgs) => {
  target[targetName] = (...args) => {
    let result = source[sourceName](...curriedArgs, ...args);
    return result === source ? target : result;
  };
};

// node_modules/@d3fc/d3fc-webgl/src/series/point.js
var point_default = () => {
  let program = programBuilder_default().mode(drawModes_default.POINTS), xScale = base_default(), yScale = base_default(), type = baseShader_default(), decorate = () => {
  }, draw = (numElements) => {
    program.vertexShader(type.vertex()).fragmentShader(type.fragment()), xScale(program, "gl_Position", 0), yScale(program, "gl_Position", 1), decorate(program), program(numElements);
  };
  return draw.type = (...args) => args.length ? (type = args[0], draw) : type, draw.decorate = (...args) => args.length ? (decorate = args[0], draw) : decorate, draw.xScale = (...args) => args.length ? (xScale = args[0], draw) : xScale, draw.yScale = (...args) => args.length ? (yScale = args[0], draw) : yScale, rebind_default(draw, program, "context", "pixelRatio"), rebindCurry_default(
    draw,
    "crossValueAttribute",
    program.buffers(),
    "attribute",
    "aCrossValue"
  ), rebindCurry_default(
    draw,
    "mainValueAttribute",
    program.buffers(),
    "attribute",
    "aMainValue"
  ), rebindCurry_default(draw, "sizeAttribute", program.buffers(), "attribute", "aSize"), rebindCurry_default(
    draw,
    "definedAttribute",
    program.buffers(),
    "attribute",
    "aDefined"
  ), draw;
};

// node_modules/@d3fc/d3fc-webgl/src/buffer/types.js
var types = {
  BYTE: 5120,
  UNSIGNED_BYTE: 5121,
  SHORT: 5122,
  UNSIGNED_SHORT: 5123,
  FLOAT: 5126
}, types_default = types;
function getArrayViewConstructor(type) {
  switch (type) {
    case types.BYTE:
      return Int8Array;
    case types.UNSIGNED_BYTE:
      return Uint8Array;
    case types.SHORT:
      return Int16Array;
    case types.UNSIGNED_SHORT:
      return Uint16Array;
    case types.FLOAT:
      return Float32Array;
    default:
      throw new Error(`Unknown type ${type}`);
  }
}

// node_modules/@d3fc/d3fc-webgl/src/buffer/baseAttribute.js
var baseAttribute_default = () => {
  let location = -1, buffer = null, size = 1, type = types_default.FLOAT, normalized = !1, stride = 0, offset = 0, divisor = null, baseAttribute = (programBuilder) => {
    let gl = programBuilder.context();
    buffer == null && (buffer = gl.createBuffer()), gl.bindBuffer(gl.ARRAY_BUFFER, buffer), gl.vertexAttribPointer(
      location,
      size,
      type,
      normalized,
      stride,
      offset
    ), gl.enableVertexAttribArray(location), programBuilder.extInstancedArrays().vertexAttribDivisorANGLE(
      location,
      divisor ?? (programBuilder.subInstanceCount() > 0 ? 1 : 0)
    );
  };
  return baseAttribute.location = (...args) => args.length ? (location = args[0], baseAttribute) : location, baseAttribute.buffer = (...args) => args.length ? (buffer = args[0], baseAttribute) : buffer, baseAttribute.size = (...args) => args.length ? (size = args[0], baseAttribute) : size, baseAttribute.type = (...args) => args.length ? (type = args[0], baseAttribute) : type, baseAttribute.normalized = (...args) => args.length ? (normalized = args[0], baseAttribute) : normalized, baseAttribute.stride = (...args) => args.length ? (stride = args[0], baseAttribute) : stride, baseAttribute.offset = (...args) => args.length ? (offset = args[0], baseAttribute) : offset, baseAttribute.divisor = (...args) => args.length ? (divisor = args[0], baseAttribute) : divisor, baseAttribute;
};

// node_modules/@d3fc/d3fc-webgl/src/buffer/arrayViewFactory.js
var arrayViewFactory_default = () => {
  let type = types_default.FLOAT, cachedArray = new Float32Array(0), factory = (requiredLength) => {
    let ArrayType = getArrayViewConstructor(type);
    return cachedArray.length > requiredLength ? cachedArray = new ArrayType(cachedArray.buffer, 0, requiredLength) : cachedArray.length !== requiredLength && (cachedArray = new ArrayType(requiredLength)), cachedArray;
  };
  return factory.type = (...args) => {
    if (!args.length)
      return type;
    if (type !== args[0]) {
      type = args[0];
      let ArrayType = getArrayViewConstructor(type);
      cachedArray = new ArrayType(0);
    }
    return factory;
  }, factory;
};

// node_modules/@d3fc/d3fc-webgl/src/buffer/attributeProjector.js
var attributeProjector_default = () => {
  let dirty = !0, size = 1, type = types_default.FLOAT, arrayViewFactory = arrayViewFactory_default(), value = (d, i) => d, data = null, projector = () => {
    let length = data.length, projectedData = arrayViewFactory.type(type)(length * size);
    if (size > 1)
      for (let i = 0; i < length; i++) {
        let componentValues = value(data[i], i);
        if (componentValues.length !== size)
          throw new Error(
            `Expected components array of size ${size}, recieved array with length ${componentValues.length}.`
          );
        for (let component = 0; component < size; component++)
          projectedData[i * size + component] = componentValues[component];
      }
    else
      for (let i = 0; i < length; i++) {
        let componentValue = value(data[i], i);
        if (Array.isArray(componentValue))
          throw new Error(
            `Expected a single component value, recieved array with length ${componentValue.length}.`
          );
        projectedData[i] = componentValue;
      }
    return dirty = !1, projectedData;
  };
  return projector.dirty = () => dirty, projector.clear = () => {
    dirty = !0;
  }, projector.size = (...args) => args.length ? (size = args[0], dirty = !0, projector) : size, projector.type = (...args) => args.length ? (type = args[0], dirty = !0, projector) : type, projector.arrayViewFactory = (...args) => args.length ? (arrayViewFactory = args[0], dirty = !0, projector) : arrayViewFactory, projector.value = (...args) => args.length ? (value = args[0], dirty = !0, projector) : value, projector.data = (...args) => args.length ? (data = args[0], dirty = !0, projector) : data, projector;
};

// node_modules/@d3fc/d3fc-webgl/src/buffer/attribute.js
var attribute_default = () => {
  let base = baseAttribute_default(), projector = attributeProjector_default(), attribute = (programBuilder) => {
    if (base.size(attribute.size()).type(attribute.type()), base(programBuilder), !projector.dirty())
      return;
    let projectedData = projector(), gl = programBuilder.context();
    gl.bindBuffer(gl.ARRAY_BUFFER, base.buffer()), gl.bufferData(gl.ARRAY_BUFFER, projectedData, gl.DYNAMIC_DRAW);
  };
  return attribute.clear = () => {
    base.buffer(null), projector.clear();
  }, rebind_default(attribute, base, "normalized", "location", "divisor"), rebind_default(attribute, projector, "data", "value", "size", "type"), attribute;
};

// node_modules/@d3fc/d3fc-webgl/src/buffer/constantAttribute.js
var constantAttribute_default = (initialValue) => {
  let base = baseAttribute_default().divisor(1), value = initialValue, dirty = !0, constantAttribute = (programBuilder) => {
    if (base(programBuilder), !dirty)
      return;
    if (!Array.isArray(value))
      throw new Error(`Expected an array, received: ${value}`);
    if (value.length !== base.size())
      throw new Error(
        `Expected array of length: ${base.size()}, recieved array of length: ${value.length}`
      );
    let gl = programBuilder.context();
    gl[`vertexAttrib${value.length}fv`](base.location(), value), gl.disableVertexAttribArray(base.location()), dirty = !1;
  };
  return constantAttribute.clear = () => {
    dirty = !0;
  }, constantAttribute.value = (...args) => args.length ? (value = args[0], dirty = !0, constantAttribute) : value, rebind_default(constantAttribute, base, "normalized", "size", "location"), constantAttribute;
};

// node_modules/@d3fc/d3fc-webgl/src/style/fillColor.js
var fillColor_default = (initialValue = [0, 0, 0, 1]) => {
  let projectedAttribute = attribute_default().size(4), value = initialValue, dirty = !0, fillColor3 = (programBuilder) => {
    if (programBuilder.vertexShader().appendHeaderIfNotExists(fillColor.header).appendBodyIfNotExists(fillColor.body), programBuilder.fragmentShader().appendHeaderIfNotExists(fillColor2.header).appendBodyIfNotExists(fillColor2.body), Array.isArray(value))
      programBuilder.buffers().attribute("aFillColor", constantAttribute_default(value).size(4));
    else if (typeof value == "function") {
      if (!dirty)
        return;
      projectedAttribute.value(value), programBuilder.buffers().attribute("aFillColor", projectedAttribute);
    } else
      throw new Error(
        `Expected value to be an array or function, received ${value}`
      );
    dirty = !1;
  };
  return fillColor3.value = (...args) => args.length ? (value !== args[0] && (value = args[0], dirty = !0), fillColor3) : value, rebind_default(fillColor3, projectedAttribute, "data"), fillColor3;
};

// node_modules/@d3fc/d3fc-webgl/src/scale/linear.js
var linear_default = () => {
  let base = base_default(), prefix = (component) => `linear${component}`, scale = (programBuilder, identifier, component) => {
    programBuilder.vertexShader().appendHeaderIfNotExists(`uniform vec4 ${prefix(component)}Offset;`).appendHeaderIfNotExists(`uniform vec4 ${prefix(component)}Scale;`).appendBody(
      `${identifier} = ${identifier} + ${prefix(component)}Offset;`
    ).appendBody(
      `${identifier} = ${identifier} * ${prefix(component)}Scale;`
    );
    let domainSize = base.domain()[1] - base.domain()[0], rangeSize = base.range()[1] - base.range()[0], translate = base.range()[0] * (domainSize / rangeSize) - base.domain()[0], scaleFactor = rangeSize / domainSize, offset = [0, 0, 0, 0], scale2 = [1, 1, 1, 1];
    offset[component] = translate, scale2[component] = scaleFactor, programBuilder.buffers().uniform(`${prefix(component)}Offset`, uniform_default(offset)).uniform(`${prefix(component)}Scale`, uniform_default(scale2));
  };
  return rebindAll_default(scale, base), scale;
};

// node_modules/@d3fc/d3fc-webgl/src/shaders/point/square/shader.js
var shader_default = () => {
  let vertexShader = shaderBuilder_default(vertexShaderBase), fragmentShader = shaderBuilder_default(fragmentShaderBase);
  return vertexShader.appendHeader(square.header).appendBody(square.body), fragmentShader.appendHeader(square2.header).appendBody(square2.body), {
    vertex: () => vertexShader,
    fragment: () => fragmentShader
  };
};
export {
  attribute_default as webglAttribute,
  baseShader_default as webglCirclePoint,
  fillColor_default as webglFillColor,
  linear_default as webglScaleLinear,
  point_default as webglSeriesPoint,
  shader_default as webglSquarePoint,
  types_default as webglTypes
};
