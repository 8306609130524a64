import{B as s,m as a,v as e}from"./screens.js";import"./shared.js";export{a as attention,e as decode,s as step};
